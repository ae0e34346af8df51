#include "interpreter/complaints.h"

#include <string>

#include "ahead/errors.h"

namespace ahead::interpreting {

using Plan = Interpreter::Plan;

void throw_not_replayable(const Plan::Call& call) {
  const std::string name =
      call.op == nullptr ? "ahead.call" : c10::toString(call.op->operator_name());
  throw Unsupported("double backward",
                    name +
                        ": there is no derivative of an operator that writes to its arguments. "
                        "Compile with double_backward = false, or keep it outside.");
}

void throw_other_tensor(const Plan::Parameter& parameter, const at::Tensor& given,
                        const std::vector<Plan::Parameter>& all) {
  TensorMeta expected = parameter.meta;
  expected.requires_grad = false;
  std::string is = "undefined";
  if (given.defined()) {
    TensorMeta meta = TensorMeta::of(given);
    meta.requires_grad = false;
    is = meta.str();
  }
  throw UserError("interpret", "argument " + std::to_string(&parameter - all.data()) + ": it is " +
                                   is + ", the graph was made for " + expected.str() +
                                   ". Trace the function again for such tensors.");
}

void throw_broken_promise(const Plan::Call& call, const TensorMeta& expected,
                          const at::Tensor& result, bool reads_sizes) {
  const std::string returned =
      c10::toString(call.op->operator_name()) + ": it returned " +
      (result.defined() ? TensorMeta::of(result).str() : "an undefined tensor") + ", but ";
  if (reads_sizes) {
    throw UserError("interpret", returned + expected.str() +
                                     " was to follow from the sizes that the graph reads from "
                                     "tensors. It is not for numbers like these: export it with "
                                     "such as well.");
  }
  throw UserError("interpret",
                  returned + expected.str() +
                      " when the function was compiled, for which the program is made. Keep what "
                      "such an operator returns alike, or call it outside.");
}

}  // namespace ahead::interpreting
