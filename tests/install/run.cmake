# Installs the build, then configures, builds and runs examples/find_package/ against the install tree.
#
# Input: SOURCE_DIR, BUILD_DIR, WORK_DIR, VERSION, GENERATOR, COMPILER,
# LAUNCHER (words separated by "|", may be empty).

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\n${output}\nexit status: ${result}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
set(prefix "${WORK_DIR}/prefix")
set(app "${WORK_DIR}/app")
string(REPLACE "|" ";" ENV{CMAKE_CXX_COMPILER_LAUNCHER} "${LAUNCHER}")

run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${prefix}")
# The prefix alone must do: the package remembers where LibTorch is.
run("${CMAKE_COMMAND}" -E env --unset=TORCH_DIR
    "${CMAKE_COMMAND}" -S "${SOURCE_DIR}/examples/find_package" -B "${app}" -G "${GENERATOR}"
    "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${COMPILER}")
run("${CMAKE_COMMAND}" --build "${app}")
run("${app}/app")

if(NOT output MATCHES "Ahead ${VERSION}")
  message(FATAL_ERROR "The program did not print 'Ahead ${VERSION}' but:\n${output}")
endif()
message("${output}")
