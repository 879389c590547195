// Tiny models that answer with vectors or scores, through tokenizer, engine and executor, against what
// sentence-transformers says of them (tools/make_pooling_cases.py).
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "apps/instance.h"
#include "apps/pending.h"
#include "base/file.h"
#include "base/testing.h"
#include "model/matrix_testing.h"

namespace quern {
namespace {

using ::testing::HasSubstr;
using testing::MatrixCase;

const std::string folder = QUERN_SOURCE_DIR "/tests/pooling/";

std::string model_path(const std::string& name) {
  const std::string gguf = folder + name + "/model.gguf";
  return file_exists(gguf) ? gguf : folder + name;
}

Json expected_of(const std::string& name) {
  return Json::parse(read_file(folder + name + "/expected.json").value()).value();
}

std::vector<int32_t> integers(const Json& json) {
  std::vector<int32_t> out;
  for (const Json& value : json.items()) out.push_back(static_cast<int32_t>(value.as_integer()));
  return out;
}

std::vector<float> numbers(const Json& json) {
  std::vector<float> out;
  for (const Json& value : json.items()) out.push_back(static_cast<float>(value.as_number()));
  return out;
}

Result<std::unique_ptr<Instance>> open(const std::string& name, InstanceOptions options = {}) {
  options.model = model_path(name);
  options.task = expected_of(name).boolean("asked") == true ? "score" : "auto";
  options.kv_cache_memory_bytes = 1 << 20;
  options.quiet = true;
  return make_instance(options);
}

Request request_of(const Instance& instance, std::vector<int32_t> ids, const std::vector<int32_t>& types = {}) {
  Request request;
  request.prompt = std::move(ids);
  request.output = instance.task().output;
  request.normalize = instance.task().normalize && request.output == OutputKind::pooled;
  const auto second = std::find(types.begin(), types.end(), 1);
  if (second != types.end()) request.second_text = static_cast<int32_t>(second - types.begin());
  return request;
}

/// The vectors of requests that are with the engine together.
std::vector<std::vector<float>> answers(Instance& instance, std::vector<Request> requests) {
  std::vector<std::shared_ptr<Pending>> pending;
  for (Request& request : requests) pending.push_back(Pending::submit(*instance.engine, std::move(request)).value());
  std::vector<std::vector<float>> out;
  for (const auto& one : pending) {
    Reply reply = one->wait();
    EXPECT_EQ(reply.reason, FinishReason::stop) << reply.error;
    out.push_back(std::move(reply.vector));
  }
  return out;
}

class PoolingGolden : public ::testing::TestWithParam<MatrixCase> {
 protected:
  void SetUp() override {
    before_ = isa_in_force();
    if (!GetParam().place.enter())
      GTEST_SKIP() << "this machine has no " << GetParam().place.name() << "; its other places stand in";
    options_.device = GetParam().place.device == DeviceKind::cpu ? "cpu" : "cuda";
    options_.dtype = "float32";
  }
  void TearDown() override { limit_isa(before_); }

  InstanceOptions options_;

 private:
  Isa before_ = Isa::portable;
};

TEST_P(PoolingGolden, VectorsAndScoresAreThoseOfSentenceTransformers) {
  const Json expected = expected_of(GetParam().cell.name());
  auto made = open(GetParam().cell.name(), options_);
  ASSERT_TRUE(made.ok()) << made.error().message;
  Instance& instance = **made;
  EXPECT_EQ(task_name(instance.task().output), expected.string("task"));
  std::vector<Request> requests;
  for (const Json& one : expected.find("cases")->items()) {
    const std::vector<int32_t> types = one.has("types") ? integers(*one.find("types")) : std::vector<int32_t>();
    requests.push_back(request_of(instance, integers(*one.find("ids")), types));
  }
  const auto got = answers(instance, std::move(requests));
  float worst = 0.0F;
  for (size_t i = 0; i < got.size(); ++i) {
    const Json& one = expected.find("cases")->items()[i];
    std::vector<float> values = got[i];
    if (values.size() == 2) values = {values[0] - values[1]};
    const std::vector<float> wanted =
        one.has("vector") ? numbers(*one.find("vector")) : std::vector<float>{static_cast<float>(*one.number("logit"))};
    ASSERT_EQ(values.size(), wanted.size());
    for (size_t k = 0; k < wanted.size(); ++k) {
      worst = std::max(worst, std::fabs(values[k] - wanted[k]) / std::max(1.0F, std::fabs(wanted[k])));
    }
  }
  testing::print_cell(GetParam().cell, GetParam().place.name(), fmt::format("{:.1e}", worst));
  // A decoder keeps keys and values as 16-bit floats, and products with Q8_0 are of activations in 16 bits.
  const bool rounded = is_causal(instance.spec()) || GetParam().cell.form == "q8_0";
  EXPECT_LE(worst, rounded ? 2e-3F : 1e-4F);
}

TEST_P(PoolingGolden, TextsBecomeTheIdsOfTransformers) {
  const Json expected = expected_of(GetParam().cell.name());
  auto made = open(GetParam().cell.name(), options_);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const Tokenizer& tokenizer = *(*made)->tokenizer;
  for (const Json& one : expected.find("cases")->items()) {
    if (const auto text = one.string("text")) {
      EXPECT_EQ(tokenizer.encode(*text, {}).value(), integers(*one.find("ids"))) << *text;
    } else if (!expected.has("asked")) {
      const auto& pair = one.find("pair")->items();
      const EncodedPair encoded = tokenizer.encode_pair(pair[0].as_string(), pair[1].as_string()).value();
      EXPECT_EQ(encoded.ids, integers(*one.find("ids")));
      EXPECT_EQ(encoded.types, integers(*one.find("types")));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PoolingGolden, ::testing::ValuesIn(testing::matrix_cases("pooling")),
                         [](const auto& test) { return test.param.name(); });

std::vector<int32_t> some_ids(int count, int seed) {
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back(4 + (i * 7 + seed * 13) % 50);
  return ids;
}

class PoolingBatch : public ::testing::TestWithParam<std::string> {};

TEST_P(PoolingBatch, ATextGivesTheSameBitsAloneAndAmongOthersAndInParts) {
  InstanceOptions usual;
  usual.batch_invariant = true;
  InstanceOptions small = usual;
  small.max_num_seqs = 4;
  auto alone = open(GetParam(), usual);
  ASSERT_TRUE(alone.ok()) << alone.error().message;
  // Steps of 24 tokens cut the prompts of a decoder; an encoder's step holds its longest text.
  if (is_causal((*alone)->spec())) small.max_num_batched_tokens = 24;
  auto together = open(GetParam(), small);
  ASSERT_TRUE(together.ok()) << together.error().message;
  std::vector<Request> requests;
  for (int i = 0; i < 20; ++i) requests.push_back(request_of(**together, some_ids(1 + i * 5, i)));
  const auto vectors = answers(**together, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto one = answers(**alone, {requests[i]})[0];
    ASSERT_EQ(one.size(), vectors[i].size());
    EXPECT_EQ(std::memcmp(one.data(), vectors[i].data(), one.size() * sizeof(float)), 0) << i;
  }
  EXPECT_EQ((*together)->engine->check_drained(), "");
}

INSTANTIATE_TEST_SUITE_P(Models, PoolingBatch,
                         ::testing::Values("qwen3_embedding", "qwen3_mean", "qwen3_score", "qwen3_embedding_gguf",
                                           "bert", "bert_score", "xlm_roberta", "modern_bert", "modern_bert_score",
                                           "bert_dense", "nomic_bert", "embedding_gemma", "embedding_gemma_q8_0",
                                           "xlm_roberta_score_gguf"),
                         [](const auto& test) { return test.param; });

TEST(Pooling, ShorterVectorsAreCutAndHaveLengthOne) {
  auto instance = open("qwen3_embedding");
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  Request whole = request_of(**instance, some_ids(9, 1));
  Request cut = whole;
  cut.dimensions = 8;
  Request raw = cut;
  raw.normalize = false;
  const auto got = answers(**instance, {whole, cut, raw});
  ASSERT_EQ(got[1].size(), 8U);
  double squares = 0;
  for (const float value : got[1]) squares += double{value} * value;
  EXPECT_NEAR(squares, 1.0, 1e-6);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(got[1][i] * got[0][0], got[0][i] * got[1][0], 1e-6);
    EXPECT_NEAR(got[2][i] * got[1][0], got[1][i] * got[2][0], 1e-5);
  }
}

TEST(Pooling, ATextIsCancelled) {
  InstanceOptions small;
  small.max_num_seqs = 1;
  small.max_num_batched_tokens = 16;
  auto instance = open("qwen3_mean", small);
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  Request first = request_of(**instance, some_ids(200, 1));
  const auto running = Pending::submit(*(*instance)->engine, first).value();
  const auto waiting = Pending::submit(*(*instance)->engine, first).value();
  (*instance)->engine->cancel(waiting->id());
  EXPECT_EQ(waiting->wait().reason, FinishReason::cancelled);
  EXPECT_EQ(running->wait().reason, FinishReason::stop);
  EXPECT_EQ((*instance)->engine->check_drained(), "");
}

/// A copy of a model of tests/pooling, to be spoilt.
class Spoilt {
 public:
  explicit Spoilt(const std::string& model) {
    std::filesystem::copy(folder + model, own_.path(), std::filesystem::copy_options::recursive);
  }

  void write(const char* file, const char* text) const { own_.write(file, text); }
  /// What is said of it after `file` got another text.
  std::string refusal(const char* file, const char* text) const {
    write(file, text);
    InstanceOptions options;
    options.model = own_.path();
    options.task = "auto";
    const auto opened = open_model(options);
    return opened.ok() ? std::string("accepted") : opened.error().message;
  }

 private:
  testing::Folder own_;
};

TEST(Pooling, EveryWayOfSentenceTransformersIsKnown) {
  const Spoilt model("qwen3_mean");
  for (const char* const known :
       {R"({"pooling_mode": "max"})", R"({"pooling_mode_max_tokens": true, "pooling_mode_mean_tokens": false})",
        R"({"pooling_mode": "weightedmean"})", R"({"pooling_mode_weightedmean_tokens": true})",
        R"({"pooling_mode": "mean_sqrt_len_tokens"})", R"({"pooling_mode_mean_sqrt_len_tokens": true})"}) {
    EXPECT_EQ(model.refusal("1_Pooling/config.json", known), "accepted") << known;
  }
}

TEST(Pooling, FilesThatAskForWhatIsNotThereAreRefused) {
  const Spoilt model("qwen3_embedding");
  const char* const pooling = "1_Pooling/config.json";
  EXPECT_THAT(model.refusal(pooling, R"({"pooling_mode": "median"})"),
              HasSubstr("only one of the poolings cls, mean, lasttoken, max, weightedmean"));
  EXPECT_THAT(model.refusal(pooling, R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})"),
              HasSubstr("knows nothing of the others"));
  EXPECT_THAT(model.refusal(pooling, R"({"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": true})"),
              HasSubstr("only one of the poolings"));
  EXPECT_THAT(model.refusal("modules.json", R"([{"type": "sentence_transformers.models.CNN", "path": "2_CNN"}])"),
              HasSubstr("the module \"sentence_transformers.models.CNN\" is not supported"));
}

TEST(Pooling, DenseModulesThatContradictThemselvesAreRefused) {
  const Spoilt model("bert_dense");
  const char* const dense = "2_Dense/config.json";
  const std::string good =
      R"({"in_features": 32, "out_features": 24, "bias": true, "activation_function": "torch.nn.modules.activation.Tanh"})";
  EXPECT_EQ(model.refusal(dense, good.c_str()), "accepted");
  EXPECT_THAT(model.refusal(dense, R"({"out_features": 25})"), HasSubstr("2_Dense.linear"));
  EXPECT_THAT(model.refusal(dense, R"({"out_features": 0})"), HasSubstr("out_features"));
  EXPECT_THAT(model.refusal(dense, R"({"out_features": 24, "activation_function": "torch.nn.modules.activation.ELU"})"),
              HasSubstr("activation.ELU is not supported"));
  EXPECT_THAT(model.refusal(dense, "[]"), HasSubstr("2_Dense/config.json"));
  model.write(dense, good.c_str());
  const std::string pooling = R"([{"type": "x.Pooling", "path": "1_Pooling"},)";
  EXPECT_THAT(model.refusal("modules.json", (pooling + R"({"type": "x.Dense", "path": "../2_Dense"}])").c_str()),
              HasSubstr("2_Dense"));
  EXPECT_THAT(model.refusal("modules.json", (pooling + R"({"type": "x.Dense", "path": "3_Dense"}])").c_str()),
              HasSubstr("3_Dense"));
  EXPECT_THAT(model.refusal("modules.json", R"([{"type": "x.Dense", "path": "2_Dense"}])"),
              HasSubstr("between pooling and normalization"));
}

}  // namespace
}  // namespace quern
