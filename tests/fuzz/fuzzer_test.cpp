#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "fuzz/check.h"
#include "fuzz/draft.h"
#include "fuzz/generator.h"
#include "fuzz/shrink.h"
#include "support/fuzzing.h"

namespace ahead::fuzz {
namespace {

const Operation& operation(const std::string& text) {
  for (const Family& family : families()) {
    for (const Operation& candidate : family.operations) {
      if (candidate.call.text == text) return candidate;
    }
  }
  throw std::invalid_argument(text);
}

Instruction line(const std::string& text, std::vector<Variable> operands, int num_results) {
  Instruction instruction;
  instruction.operation = &operation(text);
  instruction.operands = std::move(operands);
  instruction.num_results = num_results;
  return instruction;
}

/// sin(x0) split into two rows, the first of which is scaled in place.
Program small_program() {
  Program program;
  program.inputs.resize(2);
  program.inputs[0].sizes = {2, 3};
  program.inputs[0].layout = Layout::Transposed;
  program.inputs[0].requires_grad = true;
  program.inputs[1].sizes = {3};
  program.inputs[1].dtype = at::kDouble;
  program.inputs[1].captured = true;
  program.body = {line("at::sin(t[0])", {-1}, 1), line("t[0].split(n[1], n[0])", {0}, 2),
                  line("t[0].mul_(s[0])", {-2}, 0), line("at::cat(t, n[0])", {1, 2}, 1)};
  program.body[1].n = {0, 1};
  program.body[2].s = {Number(0.5)};
  program.body[2].no_grad = true;
  program.body[3].n = {-1};
  program.results = {3, -1};
  return program;
}

/// Negates every gradient that is not zero if the graph has this operator.
Tamper negate_gradients_of(const std::string& op) {
  return [op](const Graph& graph, Tensors& outputs) {
    bool found = false;
    for (const Node& node : graph.nodes()) found |= node.op().name() == op;
    for (size_t i = 0; i < outputs.size() && found; ++i) {
      const bool is_gradient = graph.outputs()[i].slot.kind == Slot::Kind::GradOf;
      if (is_gradient && outputs[i].defined()) outputs[i] = outputs[i].neg();
    }
  };
}

}  // namespace

TEST(Fuzzer, GeneratesTheSameProgramForTheSameSeed) {
  std::set<std::string> programs;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::string text = generate(seed).str();
    EXPECT_EQ(generate(seed).str(), text);
    programs.insert(text);
  }
  EXPECT_EQ(programs.size(), 20u);
}

TEST(Fuzzer, PrintsProgramsAsCode) {
  EXPECT_EQ(
      small_program().str(),
      R"(const at::Tensor x0 = make_input({.sizes = {2, 3}, .layout = Layout::Transposed, .requires_grad = true, .seed = 0});
const at::Tensor x1 = make_input({.dtype = at::kDouble, .sizes = {3}, .seed = 0});
const auto function = [=](const Tensors& in) -> Tensors {
  const at::Tensor x0 = in[0];
  at::Tensor v0 = at::sin(x0);
  const Tensors list1 = v0.split(1, 0); at::Tensor v1 = list1[0], v2 = list1[1];
  at::GradMode::set_enabled(false);
  x1.mul_(0.5);
  at::GradMode::set_enabled(true);
  at::Tensor v3 = at::cat({v1, v2}, -1);
  return {v3, x0};
};
const Tensors arguments = {x0};
)");
}

TEST(Fuzzer, AgreesOnASmallProgram) {
  const Verdict verdict = check(small_program());
  EXPECT_EQ(verdict.kind, Verdict::Kind::Agrees) << verdict.what << ": " << verdict.detail;
}

TEST(Fuzzer, MakesInputsThatDoNotDependOnEachOther) {
  Program program = small_program();
  const std::vector<MadeInput> both = make_inputs(program.inputs);
  program.inputs.erase(program.inputs.begin());
  EXPECT_TRUE(at::equal(make_inputs(program.inputs)[0].tensor, both[1].tensor));
  EXPECT_EQ(both[0].tensor.strides(), (at::IntArrayRef{1, 2}));
}

/// How many programs of a dialect have each of these in their text.
std::map<std::string, int> programs_with(const std::vector<std::string>& texts,
                                         const Dialect& dialect, uint64_t programs) {
  std::map<std::string, int> counts;
  for (uint64_t seed = 0; seed < programs; ++seed) {
    const std::string program = generate(seed, dialect).str();
    for (const std::string& text : texts) counts[text] += program.find(text) != std::string::npos;
  }
  return counts;
}

TEST(Fuzzer, MakesProgramsOfEveryKind) {
  const test::QuietWarnings quiet;
  const std::vector<std::string> effects = {
      "autocast.emplace()", "checkpointed_", "noted_checkpoint(", "note(",
      "noted_square(",      "Buffer::apply", "ScalesGradient::",  "with_noted_gradient("};
  for (const auto& [text, count] : programs_with(effects, {.effects = true}, 400))
    EXPECT_GE(count, 12) << text;
  const std::vector<std::string> training = {"0.5, true)", "0.25, true)", "0.0, true)"};
  const std::vector<std::string> evaluation = {"0.5, false)", "0.25, false)", "0.0, false)"};
  for (const auto& [text, count] : programs_with(training, {}, 400)) EXPECT_GE(count, 4) << text;
  for (const auto& [text, count] : programs_with(evaluation, {.effects = true}, 400))
    EXPECT_GE(count, 4) << text;
  for (const auto& [text, count] : programs_with({".wrapper = true"}, {.wrappers = true}, 100))
    EXPECT_GE(count, 50) << text;
  for (const auto& [text, count] : programs_with(effects, {}, 100)) EXPECT_EQ(count, 0) << text;
}

TEST(Fuzzer, FindsAWrongGradientAndShrinksTheProgram) {
  const Tamper tamper = negate_gradients_of("aten.sigmoid_backward");
  const auto fails = [&](const Program& program) {
    const Verdict verdict = check(program, tamper);
    return verdict.kind == Verdict::Kind::Differs && verdict.what == "gradient";
  };
  int found = 0;
  for (uint64_t seed = 0; seed < 2000 && found < 3; ++seed) {
    const Program program = generate(seed);
    if (program.body.size() < 6 || !fails(program) ||
        !(check(program).kind == Verdict::Kind::Agrees))
      continue;
    ++found;
    const Program minimal = shrink(program, fails);
    EXPECT_LE(minimal.body.size(), 3u) << minimal.str();
    EXPECT_TRUE(fails(minimal));
  }
  EXPECT_EQ(found, 3);
}

TEST(Fuzzer, ShrinksInputsResultsAndSizes) {
  const auto uses_sin = [](const Program& program) {
    for (const Instruction& instruction : program.body) {
      if (std::string(instruction.operation->call.text) == "at::sin(t[0])") return true;
    }
    return false;
  };
  const Program minimal = shrink(small_program(), uses_sin);
  EXPECT_EQ(minimal.body.size(), 1u);
  EXPECT_TRUE(minimal.results.empty());
  ASSERT_EQ(minimal.inputs.size(), 1u);
  EXPECT_TRUE(minimal.inputs[0].sizes.empty());
  EXPECT_FALSE(minimal.inputs[0].requires_grad);
}

}  // namespace ahead::fuzz
