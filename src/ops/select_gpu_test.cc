#include "ops/gpu_testing.h"
#include "ops/select.h"

namespace quern::testing {
namespace {

using SelectRowsGpu = OnGpu;

TEST_F(SelectRowsGpu, CopiesElementsOfEverySize) {
  for (const Dtype type : {Dtype::f32, Dtype::bf16, Dtype::i8}) {
    for (const int32_t cols : {1, 33, 4096, 10000}) {
      for (const int32_t stride : {(cols + 15) / 16 * 16, cols + 3}) {
        TestDevice device;
        Exec exec = device.exec();
        const int64_t bytes = dtype_bytes(type);
        std::vector<std::byte> values(static_cast<size_t>(9 * stride * bytes));
        std::mt19937 random(1);
        for (std::byte& value : values) value = static_cast<std::byte>(random());
        Tensor x = Tensor::dense(values.data(), type, 9, cols);
        x.strides[0] = stride;
        std::vector<int32_t> indices{8, 0, 3, 3};

        const Tensor y = select_rows(exec, x, quern::view(indices));

        for (size_t i = 0; i < indices.size(); ++i) {
          const int64_t from = int64_t{indices[i]} * stride * bytes;
          ASSERT_EQ(std::memcmp(y.data + static_cast<int64_t>(i) * cols * bytes, values.data() + from,
                                static_cast<size_t>(cols * bytes)),
                    0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace quern::testing
