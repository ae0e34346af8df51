# Test and benchmark frameworks: the installed package if there is one, else a pinned download.

include(FetchContent)

macro(ahead_need_googletest)
  find_package(GTest QUIET)
  if(NOT GTest_FOUND)
    message(STATUS "GoogleTest is not installed; downloading it")
    set(INSTALL_GTEST OFF)
    FetchContent_Declare(googletest SYSTEM GIT_SHALLOW ON
      GIT_REPOSITORY https://github.com/google/googletest.git GIT_TAG v1.14.0)
    FetchContent_MakeAvailable(googletest)
  endif()
endmacro()

macro(ahead_need_benchmark)
  find_package(benchmark QUIET)
  if(NOT benchmark_FOUND)
    message(STATUS "Google Benchmark is not installed; downloading it")
    set(BENCHMARK_ENABLE_TESTING OFF)
    set(BENCHMARK_ENABLE_INSTALL OFF)
    set(BENCHMARK_ENABLE_WERROR OFF)
    FetchContent_Declare(benchmark SYSTEM GIT_SHALLOW ON
      GIT_REPOSITORY https://github.com/google/benchmark.git GIT_TAG v1.8.4)
    FetchContent_MakeAvailable(benchmark)
  endif()
endmacro()
