# Finds LibTorch 2.11 to 2.13, either a LibTorch archive or the torch folder of a Python package.
#
# Input:   TORCH_DIR (variable or environment): the folder that has include/ and lib/.
# Output:  target LibTorch::LibTorch, LibTorch_FOUND, LibTorch_VERSION, LibTorch_DIR_FOUND.
#
# LibTorch's own package file is not used: it asks for the CUDA toolkit wherever LibTorch has CUDA
# support, though nothing here compiles CUDA sources.

set(LibTorch_OLDEST 2.11)
set(LibTorch_NEWEST 2.13)

find_path(LibTorch_INCLUDE_DIR torch/csrc/api/include/torch/torch.h
          HINTS "${TORCH_DIR}/include" "$ENV{TORCH_DIR}/include" "${Torch_DIR}/../../../include"
          DOC "LibTorch's include folder")
# A new TORCH_DIR must win over the place remembered from an earlier configuration.
if(TORCH_DIR AND EXISTS "${TORCH_DIR}/include" AND NOT LibTorch_INCLUDE_DIR STREQUAL "${TORCH_DIR}/include")
  set(LibTorch_INCLUDE_DIR "${TORCH_DIR}/include" CACHE PATH "LibTorch's include folder" FORCE)
endif()
mark_as_advanced(LibTorch_INCLUDE_DIR)

if(LibTorch_INCLUDE_DIR)
  cmake_path(GET LibTorch_INCLUDE_DIR PARENT_PATH LibTorch_DIR_FOUND)
  foreach(name torch torch_cpu c10)
    set(LibTorch_${name}_LIBRARY
        "${LibTorch_DIR_FOUND}/lib/${CMAKE_SHARED_LIBRARY_PREFIX}${name}${CMAKE_SHARED_LIBRARY_SUFFIX}")
    if(NOT EXISTS "${LibTorch_${name}_LIBRARY}")
      set(LibTorch_${name}_LIBRARY LibTorch_${name}_LIBRARY-NOTFOUND)
    endif()
  endforeach()
  foreach(header torch/headeronly/version.h torch/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS "${LibTorch_INCLUDE_DIR}/${header}" AND NOT LibTorch_VERSION)
      file(STRINGS "${LibTorch_INCLUDE_DIR}/${header}" LibTorch_numbers
           REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
      string(REGEX MATCHALL "[0-9]+" LibTorch_numbers "${LibTorch_numbers}")
      list(JOIN LibTorch_numbers "." LibTorch_VERSION)
    endif()
  endforeach()
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" LibTorch_SERIES "${LibTorch_VERSION}")
  if(LibTorch_SERIES VERSION_LESS LibTorch_OLDEST OR LibTorch_SERIES VERSION_GREATER LibTorch_NEWEST)
    set(LibTorch_problem "LibTorch '${LibTorch_VERSION}' in ${LibTorch_DIR_FOUND} is not one of the "
        "versions that Ahead works with, ${LibTorch_OLDEST} to ${LibTorch_NEWEST}.")
    string(CONCAT LibTorch_problem ${LibTorch_problem})
    set(LibTorch_SERIES LibTorch_SERIES-NOTFOUND)
  endif()
else()
  set(LibTorch_problem "Set TORCH_DIR to the folder that has LibTorch's include/ and lib/.")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_torch_LIBRARY LibTorch_torch_cpu_LIBRARY LibTorch_c10_LIBRARY
                LibTorch_INCLUDE_DIR LibTorch_SERIES
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "${LibTorch_problem}")

# LibTorch's packages bring their own OpenMP; a second one in the process would have threads of its own.
if(LibTorch_FOUND AND NOT TARGET LibTorch::OpenMP)
  add_library(LibTorch::OpenMP INTERFACE IMPORTED)
  file(GLOB LibTorch_openmp "${LibTorch_DIR_FOUND}/lib/libgomp*.so*" "${LibTorch_DIR_FOUND}/../torch.libs/libgomp*.so*")
  if(LibTorch_openmp)
    list(GET LibTorch_openmp 0 LibTorch_openmp)
    target_link_libraries(LibTorch::OpenMP INTERFACE "${LibTorch_openmp}")
  else()
    find_package(OpenMP REQUIRED)
    target_link_libraries(LibTorch::OpenMP INTERFACE ${OpenMP_CXX_LIBRARIES})
  endif()
endif()

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  find_package(Threads REQUIRED)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE
    "${LibTorch_INCLUDE_DIR}" "${LibTorch_INCLUDE_DIR}/torch/csrc/api/include")
  target_compile_features(LibTorch::LibTorch INTERFACE cxx_std_20)
  target_compile_definitions(LibTorch::LibTorch INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
  target_link_libraries(LibTorch::LibTorch INTERFACE
    "${LibTorch_torch_LIBRARY}" "${LibTorch_torch_cpu_LIBRARY}" "${LibTorch_c10_LIBRARY}" Threads::Threads)
  set(LibTorch_torch_cuda_LIBRARY "${LibTorch_DIR_FOUND}/lib/libtorch_cuda.so")
  if(EXISTS "${LibTorch_torch_cuda_LIBRARY}")
    # CUDA kernels register themselves when their library is loaded; no symbol asks for it, so the
    # linker must be told to keep it. Its own dependencies are found at run time by its own path.
    target_link_libraries(LibTorch::LibTorch INTERFACE
      "-Wl,--push-state,--no-as-needed,${LibTorch_torch_cuda_LIBRARY},--pop-state"
      "${LibTorch_DIR_FOUND}/lib/libc10_cuda.so")
    target_link_options(LibTorch::LibTorch INTERFACE LINKER:--allow-shlib-undefined)
  endif()
endif()
