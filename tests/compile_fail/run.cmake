# Compiles what must not compile and checks that the compiler says why.
#
# Input: COMPILER, INCLUDES (folders separated by "|"), WORK_DIR.

set(program [=[
#include "ahead/tree.h"

struct Logger {};
void unsupported_type(const std::vector<std::pair<at::Tensor, Logger>>& tree) { ahead::flatten(tree); }

struct Forgetful {
  at::Tensor images;
  at::Tensor labels;
};
AHEAD_TREE(Forgetful, images)
void unlisted_field(const Forgetful& tree) { ahead::flatten(tree); }

struct Frozen {
  const at::Tensor weight;
};
AHEAD_TREE(Frozen, weight)
void const_tensor(const Frozen& tree) { ahead::unflatten(tree, {}); }

void reference(const std::tuple<at::Tensor&>& tree) { ahead::flatten(tree); }
]=])

set(expected
  "Logger"
  "If it is a struct, announce it: AHEAD_TREE\\(Type, field, \\.\\.\\.\\)"
  "AHEAD_TREE does not list every field of the struct"
  "Forgetful"
  "AHEAD_TREE: a const field cannot hold a tensor"
  "Tensor ?&")

file(WRITE "${WORK_DIR}/program.cpp" "${program}")
string(REPLACE "|" ";" folders "${INCLUDES}")
list(TRANSFORM folders PREPEND "-I")
execute_process(
  COMMAND "${COMPILER}" -std=c++20 -DNDEBUG -w -fsyntax-only ${folders} "${WORK_DIR}/program.cpp"
  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)

if(result EQUAL 0)
  message(FATAL_ERROR "The program compiled.")
endif()
string(REGEX MATCHALL "error: " errors "${output}")
list(LENGTH errors num_errors)
if(NOT num_errors EQUAL 4)
  message(FATAL_ERROR "There are ${num_errors} errors rather than one for each function:\n${output}")
endif()
foreach(text IN LISTS expected)
  if(NOT output MATCHES "${text}")
    message(FATAL_ERROR "The compiler did not say '${text}' but:\n${output}")
  endif()
endforeach()
