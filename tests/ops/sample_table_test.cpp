#include <gtest/gtest.h>

#include <set>
#include <string>

#include "ops/op_checks.h"
#include "ops/sample.h"

namespace ahead::samples {
namespace sample_table_test {

TEST(SampleTableTest, LabelsAreUnique) {
  for (const SampleTable::Op& op : sample_table().ops()) {
    std::set<std::string> labels;
    for (const Sample& sample : op.samples) {
      EXPECT_TRUE(labels.insert(sample.label).second) << op.name << " (" << sample.label << ")";
    }
  }
}

TEST(SampleTableTest, HasManyOperatorsWithSeveralSamplesEach) {
  size_t operators = 0, samples = 0;
  for (const SampleTable::Op& op : sample_table().ops()) {
    if (op.name.rfind("aten.", 0) != 0) continue;
    ++operators;
    samples += op.samples.size();
    EXPECT_GE(op.samples.size(), 3u) << op.name;
  }
  EXPECT_GE(operators, 450u);
  EXPECT_GE(samples, 10 * operators);
}

TEST(SampleTableTest, RunsInEager) {
  for (const SampleTable::Op& op : sample_table().ops()) {
    for (const Sample& sample : op.samples) {
      if (const std::string text = check_eager(sample); !text.empty()) ADD_FAILURE() << text;
    }
  }
}

}  // namespace sample_table_test
}  // namespace ahead::samples
