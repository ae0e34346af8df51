#include <gtest/gtest.h>

#include <algorithm>

#include "ops/op_checks.h"
#include "ops/sample.h"

namespace ahead::samples {
namespace op_table_test {

class OpTable : public testing::TestWithParam<size_t> {
 protected:
  /// Makes the check for all samples of the operator; shows the first few that fail.
  void check(Check kind, std::string (*check)(const Sample&)) {
    constexpr size_t shown = 3;
    size_t failures = 0;
    const SampleTable::Op& op = sample_table().ops()[GetParam()];
    for (const Sample& sample : op.samples) {
      if (!sample.skipped(kind).empty()) continue;
      const std::string text = check(sample);
      if (!text.empty() && ++failures <= shown) ADD_FAILURE() << text;
    }
    EXPECT_EQ(failures, 0u) << "of " << op.samples.size() << " samples of " << op.name;
  }
};

TEST_P(OpTable, Metadata) {
  check(Check::Metadata, check_metadata);
}
TEST_P(OpTable, Values) {
  check(Check::Values, check_values);
}
TEST_P(OpTable, Gradients) {
  check(Check::Gradients, check_gradients);
}
TEST_P(OpTable, Compiled) {
  check(Check::Gradients, check_compiled);
}
TEST_P(OpTable, CompiledAutograd) {
  check(Check::Gradients, check_compiled_autograd);
}

std::vector<size_t> all_ops() {
  std::vector<size_t> ops(sample_table().ops().size());
  for (size_t i = 0; i < ops.size(); ++i) ops[i] = i;
  return ops;
}

/// `aten.add_` as `aten_add_`: names of tests hold letters, digits and underscores only.
std::string test_name(const testing::TestParamInfo<size_t>& info) {
  std::string name = sample_table().ops()[info.param].name;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Every, OpTable, testing::ValuesIn(all_ops()), test_name);

}  // namespace op_table_test
}  // namespace ahead::samples
