# The CUDA backend: kernels are compiled ahead of time for the listed architectures, nothing when the program starts. The
# runtime is linked statically; the driver, cuBLASLt and NVML are opened when the program runs, so that one program starts
# with or without a GPU.
find_program(CMAKE_CUDA_COMPILER nvcc HINTS /usr/local/cuda/bin ${CMAKE_SOURCE_DIR}/build/cuda-toolkit/nvidia/cu13/bin)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "no nvcc: tools/bootstrap cuda installs it")
endif()
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90a-real)
endif()
set(CMAKE_CUDA_STANDARD_REQUIRED OFF)  # CMake 3.25 knows no CUDA C++20; the option below says it
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
if(CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
find_package(CUDAToolkit REQUIRED)
add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-std=c++20> $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xfatbin=-compress-all> $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffunction-sections,-fdata-sections>)

# The compiler's packages have no header of cuBLASLt; a toolkit has.
find_path(QUERN_CUBLASLT cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(QUERN_CUBLASLT)
  set(quern_unused_blas "blas_none")
else()
  set(quern_unused_blas "blas[.]cc")
  message(STATUS "no cublasLt.h: large matrix products will use kernels of our own")
endif()
