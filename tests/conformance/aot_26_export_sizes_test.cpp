#include "conformance/aot_support.h"
#include "support/round_trip.h"

namespace ahead::conformance {
namespace aot_26_export_sizes_test {

using aot::ExportedModule;
using Names = std::vector<std::string>;

struct ReadsItsSize : torch::nn::Module {
  at::Tensor forward() {
    const at::Tensor full = torch::full({}, 11, torch::kLong);
    const c10::SymInt i0 = full.item().toSymInt();
    return torch::full_symint({i0}, 0, torch::kLong);
  }
};

// The size that is read is s0 here, and the node that reads it names it: a node returns tensors.
TEST(AotExport, test_aot_export_unbacked_arg) {
  const auto module = std::make_shared<ReadsItsSize>();
  const ExportedModule exported = aot::export_module(module, Tensors{});
  EXPECT_EQ(exported.graph.str(), R"(graph():
  %0: i64[] = aten.full([], 11, dtype.i64, none, none, none)
  ahead.local_scalar_dense(%0, size("s0")) !effect
  %1: i64[s0] = aten.full([size("s0")], 0, dtype.i64, none, none, none)
  return (%1 Output 0)
)");
  expect_round_trip(exported.graph);
  EXPECT_TRUE(exported.signature.inputs.empty());
  EXPECT_EQ(exported.signature.user_outputs(), Names{"out0"});
  expect_same({module->forward()}, exported({}));
  expect_same({module->forward()}, exported.prepare("native")({}));
}

}  // namespace aot_26_export_sizes_test
}  // namespace ahead::conformance
