# How Ahead's own targets are compiled: build type, warnings, sanitizers, compiler cache.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
# Line tables only: full debug information of LibTorch's templates makes objects several times larger.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")

# A finished compilation is kept for every checkout of the same text: paths below the source root are
# made relative, and a precompiled header counts by its content.
find_program(CCACHE_PROGRAM ccache)
mark_as_advanced(CCACHE_PROGRAM)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND}" -E env
      "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=true
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      "${CCACHE_PROGRAM}")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(ahead_ccache_options -fpch-preprocess)
  endif()
endif()

# Collecting garbage in a heap that LibTorch's headers fill with a gigabyte frees little and takes long.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(ahead_compiler_memory --param=ggc-min-heapsize=1048576)
endif()

set(ahead_warnings -Wall -Wextra -Wpedantic -Wnon-virtual-dtor)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # These come from the optimiser after inlining, where "system header" is forgotten, and are mostly
  # false alarms inside LibTorch and the standard library.
  list(APPEND ahead_warnings -Wno-maybe-uninitialized -Wno-restrict -Wno-array-bounds
       -Wno-stringop-overflow -Wno-stringop-overread -Wno-free-nonheap-object)
  if(AHEAD_SANITIZE STREQUAL "thread")
    list(APPEND ahead_warnings -Wno-tsan)  # LibTorch's headers use atomic_thread_fence
  endif()
endif()
if(AHEAD_WARNINGS_AS_ERRORS)
  list(APPEND ahead_warnings -Werror)
endif()

if(AHEAD_SANITIZE AND NOT AHEAD_SANITIZE MATCHES "^(address|thread)$")
  message(FATAL_ERROR "AHEAD_SANITIZE is '${AHEAD_SANITIZE}'; use 'address' or 'thread'.")
endif()

# Applies the rules of the house to one of Ahead's own targets.
function(ahead_own_target target)
  target_compile_options(${target} PRIVATE ${ahead_warnings} ${ahead_compiler_memory} ${ahead_ccache_options})
  # LibTorch's headers hold debug-only checks that do not fit its release libraries.
  target_compile_definitions(${target} PRIVATE NDEBUG)
  # Symbols stay visible, so that tests reach the classes below src/. Inline functions of a program
  # must be visible too: a LibTorch built by an older compiler may want to share them.
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "SHARED_LIBRARY")
    set_target_properties(${target} PROPERTIES VISIBILITY_INLINES_HIDDEN ON)
  endif()
  if(AHEAD_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${AHEAD_SANITIZE} -fno-omit-frame-pointer -O1)
    target_link_options(${target} PRIVATE -fsanitize=${AHEAD_SANITIZE})
  endif()
endfunction()

# Compiles the sources of a target some at a time, folder by folder, with LibTorch's headers precompiled: most
# of what a compiler does for a file is reading them.
function(ahead_in_batches target)
  if(NOT AHEAD_BATCHES)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}/src" OUTPUT_VARIABLE folder)
    string(REGEX REPLACE "/.*" "" folder "${folder}")
    set(count "${count_${folder}}")
    if(NOT count)
      set(count 0)
    endif()
    math(EXPR batch "${count} / 14")
    math(EXPR count_${folder} "${count} + 1")
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${folder}_${batch}")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  target_precompile_headers(${target} PRIVATE
    <torch/csrc/autograd/custom_function.h> <torch/csrc/autograd/engine.h>
    <torch/csrc/dynamo/compiled_autograd.h> <torch/library.h> <ATen/FunctionalTensorWrapper.h>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Classes that are private to a file look as if they were in a header.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()
