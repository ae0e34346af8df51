#include "native/like_eager.h"

#include <gtest/gtest.h>

#include "support/fuzzing.h"

namespace ahead::native::test {

using Tensors = std::vector<at::Tensor>;

CallInputs leaves_of(const Tensors& tensors) {
  CallInputs inputs;
  for (const at::Tensor& tensor : tensors) {
    inputs.passed.push_back(tensor);
    if (!tensor.is_floating_point()) continue;
    inputs.leaves.push_back(inputs.passed.back().requires_grad_());
  }
  return inputs;
}

std::string expect_like_eager(const aot::FlatFunction& function,
                              const std::function<CallInputs()>& make_inputs, CallPoints points) {
  const ahead::test::QuietWarnings quiet;
  std::string graphs;
  points.rounding = rounding;
  for (const Partitioner partitioner : {Partitioner::Default, Partitioner::MinCut}) {
    SCOPED_TRACE(partitioner == Partitioner::Default ? "default" : "min-cut");
    auto compiled = compile(function, {.backend = "native",
                                       .fullgraph = true,
                                       .partitioner = partitioner,
                                       .confirm = Confirm::Never,
                                       .debug_asserts = true});
    const CallSide eager{function, make_inputs};
    const CallSide native{[&](const Tensors& args) { return compiled(args); }, make_inputs};
    for (uint64_t call = 0; call < 3; ++call) {
      SCOPED_TRACE("call " + std::to_string(call));
      const ComparedCall compared = compare_call(eager, native, call, points);
      EXPECT_EQ(compared.error, "");
      EXPECT_EQ(compared.unsupported, "");
      for (const auto& [what, detail] : compared.differences)
        ADD_FAILURE() << what << ": " << detail;
    }
    graphs = fused_graphs(compiled);
    EXPECT_NE(graphs.find("ahead.call"), std::string::npos) << graphs;
  }
  return graphs;
}

std::string expect_like_eager(const aot::FlatFunction& function,
                              const std::function<Tensors()>& make) {
  return expect_like_eager(function, [&] { return leaves_of(make()); });
}

}  // namespace ahead::native::test
