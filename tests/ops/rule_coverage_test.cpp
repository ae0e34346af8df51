#include <ATen/core/dispatch/Dispatcher.h>
#include <ahead/trace.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "ops/eager.h"
#include "ops/sample.h"
#include "ops/shape_rules.h"

namespace ahead::samples {
namespace rule_coverage_test {

/// Adds the operators of the graph that `make` returns; a sample that fails elsewhere adds none.
template <class F>
void collect(std::set<std::string>& names, F make) {
  try {
    const Graph graph = make();
    for (const Node& node : graph.nodes()) names.insert(node.op().name());
  } catch (const std::exception&) {
  }
}

std::set<std::string> recorded_operators() {
  std::set<std::string> names;
  for (const SampleTable::Op& op : sample_table().ops()) {
    for (const Sample& sample : op.samples) {
      collect(names, [&] { return trace(sample.make_function(), sample.make_arguments()); });
      collect(names, [&] {
        const std::vector<bool> mutated = run_eager(sample).mutated;
        return trace_joint(sample.make_function(),
                           make_differentiable_arguments(sample, mutated).arguments);
      });
    }
  }
  return names;
}

/// Whether the CPU has a kernel for the operator. One that only has a composite implementation is
/// taken apart before it could be recorded.
bool runs_on_cpu(const std::string& rule) {
  const size_t dot = rule.find('.');
  const std::string overload = dot == std::string::npos ? "" : rule.substr(dot + 1);
  const auto handle =
      c10::Dispatcher::singleton().findSchema({"aten::" + rule.substr(0, dot), overload});
  if (!handle.has_value()) return false;
  if (handle->hasKernelForDispatchKey(c10::DispatchKey::CPU)) return true;
  return !handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         handle->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
}

TEST(RuleCoverageTest, EveryShapeRuleIsSampled) {
  const std::set<std::string> recorded = recorded_operators();
  for (const auto& [rule, kernel] : ops::shape_rules().all()) {
    if (!runs_on_cpu(rule)) continue;
    EXPECT_TRUE(recorded.count("aten." + rule)) << rule << " has a rule but no sample";
  }
}

}  // namespace rule_coverage_test
}  // namespace ahead::samples
