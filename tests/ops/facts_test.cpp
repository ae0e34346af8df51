#include "ops/facts/facts.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/headeronly/version.h>
#include <torch/library.h>

#include <set>
#include <thread>

#include "ops/facts/aliasing.h"
#include "ops/facts/fact_table.h"

namespace ahead::ops {
namespace facts_test {

TORCH_LIBRARY(ahead_facts_test, library) {
  library.def("pure(Tensor x) -> Tensor", {at::Tag::pt2_compliant_tag});
  library.def("unknown(Tensor x) -> Tensor");
  library.def("writes(Tensor(a!) x) -> ()");
  library.def("relu(Tensor x) -> Tensor");
}

std::vector<const Operator*> all_aten_operators() {
  std::vector<const Operator*> operators;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    if (auto handle = c10::Dispatcher::singleton().findSchema(name)) {
      operators.push_back(&Operator::of(*handle));
    }
  }
  return operators;
}

const OpFacts& facts_of(const std::string& name) {
  const Operator* op = Operator::find(name);
  if (op == nullptr) throw std::runtime_error("no operator " + name);
  return facts(*op);
}

bool aliases_without_writing(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

void expect_same_arguments(const Operator& a, const Operator& b, bool optional_may_differ) {
  const auto& left = a.schema().arguments();
  const auto& right = b.schema().arguments();
  ASSERT_EQ(left.size(), right.size()) << a.name() << " and " << b.name();
  for (size_t i = 0; i < left.size(); ++i) {
    if (!optional_may_differ) {
      EXPECT_EQ(*left[i].type(), *right[i].type()) << a.name();
    }
  }
}

TEST(FactTable, EveryRowNamesAnOperator) {
  std::set<std::string> known;
  for (const Operator* op : all_aten_operators()) {
    const std::string name = op->name().substr(std::string("aten.").size());
    known.insert(name);
    known.insert(name.substr(0, name.find('.')));
  }
  std::set<std::string> rows;
  for (auto* row = fact_table_begin(); row != fact_table_end(); ++row) {
    // Some operators are newer than the oldest LibTorch.
    EXPECT_TRUE(known.count(row->name) || TORCH_VERSION_MINOR < 13) << row->name;
    EXPECT_TRUE(rows.insert(row->name).second) << row->name << " has two rows";
  }
  EXPECT_GE(rows.size(), 250U);
}

TEST(Facts, TwinsTakeTheSameArguments) {
  size_t twins = 0;
  for (const Operator* op : all_aten_operators()) {
    const OpFacts& known = facts(*op);
    if (known.functional != nullptr) {
      ++twins;
      EXPECT_FALSE(facts(*known.functional).effectful) << op->name();
      expect_same_arguments(*op, *known.functional, !known.hidden_writes.empty());
    }
    if (known.in_place != nullptr) {
      EXPECT_EQ(facts(*known.in_place).functional, op) << op->name();
    }
  }
  EXPECT_GT(twins, 300U);
}

TEST(Facts, TwinsUnderAnotherNameAreFound) {
  EXPECT_EQ(facts_of("aten.mul_.Tensor").functional, Operator::find("aten.mul.Tensor"));
  EXPECT_EQ(facts_of("aten.mul.Tensor").in_place, Operator::find("aten.mul_.Tensor"));
  EXPECT_EQ(facts_of("aten.__iand__.Tensor").functional, Operator::find("aten.__and__.Tensor"));
  EXPECT_EQ(facts_of("aten.bernoulli_.float").functional, Operator::find("aten.bernoulli.p"));
  EXPECT_EQ(facts_of("aten.bernoulli.p").in_place, Operator::find("aten.bernoulli_.float"));
  EXPECT_EQ(facts_of("aten.normal_").functional, Operator::find("aten.normal_functional"));
  EXPECT_EQ(facts_of("aten._native_batch_norm_legit_functional").in_place, nullptr);
}

TEST(Facts, EveryWrittenArgumentHasATwinOrAReason) {
  // What has none: nothing below functionalisation calls it, or it is an effect by nature.
  const std::set<std::string> without = {"_cummax_helper",
                                         "_cummin_helper",
                                         "_fill_mem_eff_dropout_mask_",
                                         "fill_diagonal_",
                                         "_flash_attention_forward_no_dropout_inplace",
                                         "_sobol_engine_ff_",
                                         "polygamma_",
                                         "_sobol_engine_initialize_state_",
                                         "_sobol_engine_scramble_",
                                         "record_stream",
                                         "set_data",
                                         "requires_grad_",
                                         "retain_grad",
                                         "set_",
                                         "fbgemm_linear_fp16_weight",
                                         "cudnn_batch_norm",
                                         "fbgemm_linear_fp16_weight_fp32_activation",
                                         "fused_moving_avg_obs_fake_quant",
                                         "miopen_batch_norm",
                                         "batch_norm_gather_stats",
                                         "batch_norm_gather_stats_with_counts",
                                         "batch_norm_update_stats",
                                         "_cudnn_rnn_flatten_weight"};
  for (const Operator* op : all_aten_operators()) {
    const auto& arguments = op->schema().arguments();
    const OpFacts& known = facts(*op);
    bool writes = !known.hidden_writes.empty();
    bool out = false;
    for (const c10::Argument& argument : arguments) {
      writes |= argument.alias_info() != nullptr && argument.alias_info()->isWrite();
      out |= argument.is_out();
    }
    if (!writes || out || known.functional != nullptr) continue;
    const std::string name = op->schema().name().substr(std::string("aten::").size());
    EXPECT_TRUE(without.count(name)) << op->name();
  }
}

TEST(Facts, ViewKindsAgreeWithTheSchema) {
  for (const Operator* op : all_aten_operators()) {
    const ViewKind view = facts(*op).view;
    if (view == ViewKind::MaybeAlias) continue;
    EXPECT_EQ(view != ViewKind::None, aliases_without_writing(op->schema())) << op->name();
  }
  EXPECT_EQ(facts_of("aten.view").view, ViewKind::View);
  EXPECT_EQ(facts_of("aten.split.Tensor").view, ViewKind::MultiView);
  EXPECT_EQ(facts_of("aten._unsafe_view").view, ViewKind::MaybeAlias);
  EXPECT_EQ(facts_of("aten.add.Tensor").view, ViewKind::None);
}

TEST(Facts, TaggedDataDependenceIsKnown) {
  // Values matter for some arguments of these only; their shape rules refuse, or another does.
  const std::set<std::string> sometimes = {
      "aten.index.Tensor",     "aten.linalg_lstsq",
      "aten.index.Tensor_out", "aten.repeat_interleave.Tensor",
      "aten.linalg_lstsq.out", "aten.repeat_interleave.Tensor_out",
      "aten._ctc_loss",        "aten._ctc_loss.Tensor_out",
      "aten._ctc_loss.out",    "aten.one_hot"};
  for (const Operator* op : all_aten_operators()) {
    const c10::OperatorHandle& handle = op->handle();
    if (!handle.hasTag(at::Tag::data_dependent_output) &&
        !handle.hasTag(at::Tag::dynamic_output_shape)) {
      continue;
    }
    EXPECT_NE(facts(*op).data_dependent != nullptr, sometimes.count(op->name()) != 0) << op->name();
  }
}

TEST(Facts, ConditionsOfRandomnessAreProbabilitiesOrFlags) {
  const std::set<std::string> names = {"dropout_p", "dropout", "training", "train"};
  for (const Operator* op : all_aten_operators()) {
    const OpFacts& known = facts(*op);
    if (known.random_if < 0) continue;
    ASSERT_LT(static_cast<size_t>(known.random_if), op->schema().arguments().size()) << op->name();
    const std::string& name = op->schema().arguments()[known.random_if].name();
    EXPECT_TRUE(names.count(name)) << op->name() << " has " << name;
  }
}

TEST(Facts, HiddenWritesAreRunningStatistics) {
  for (const Operator* op : all_aten_operators()) {
    for (uint8_t index : facts(*op).hidden_writes) {
      const std::string& name = op->schema().arguments().at(index).name();
      EXPECT_TRUE(name.rfind("running_", 0) == 0 || name == "weight_arr")
          << op->name() << " " << name;
    }
  }
  EXPECT_EQ(facts_of("aten.native_batch_norm").hidden_writes.size(), 2U);
}

TEST(Facts, EveryOperatorHasAReasonForItsRecomputeClass) {
  for (const Operator* op : all_aten_operators()) {
    EXPECT_STRNE(facts(*op).recompute_reason, "") << op->name();
    if (!facts(*op).pure() && facts(*op).random_if < 0) {
      EXPECT_EQ(facts(*op).recompute, Recompute::Never) << op->name();
    }
  }
}

struct Call {
  const char* name;
  std::vector<c10::IValue> arguments;
};

TEST(Facts, RandomOperatorsMoveTheGeneratorAndPureOnesDoNot) {
  const at::Tensor x = torch::rand({4, 5});
  const c10::IValue none;
  const std::vector<Call> calls = {
      {"aten.native_dropout", {x, 0.5, true}},
      {"aten.bernoulli", {x, none}},
      {"aten.bernoulli.p", {x, 0.5, none}},
      {"aten.normal_functional", {x, 0.0, 1.0, none}},
      {"aten.uniform", {x, 0.0, 1.0, none}},
      {"aten.exponential", {x, 1.0, none}},
      {"aten.multinomial", {x, int64_t{2}, false, none}},
      {"aten.poisson", {x, none}},
      {"aten.rand_like", {x, none, none, none, none, none}},
      {"aten.randperm", {int64_t{7}, none, none, none, none}},
      {"aten._standard_gamma", {x, none}},
      {"aten.relu", {x}},
      {"aten.mm", {x, x.t()}},
      {"aten.add.Tensor", {x, x, 1}},
      {"aten.cumsum", {x, int64_t{0}, none}},
      {"aten._softmax", {x, int64_t{1}, false}},
      {"aten.sort", {x, int64_t{0}, false}},
      {"aten.native_layer_norm", {x, std::vector<int64_t>{5}, none, none, 1e-5}},
  };
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  for (const Call& call : calls) {
    const Operator* op = Operator::find(call.name);
    ASSERT_NE(op, nullptr) << call.name;
    const at::Tensor before = generator.get_state().clone();
    torch::jit::Stack stack = call.arguments;
    op->handle().callBoxed(stack);
    EXPECT_EQ(!at::equal(before, generator.get_state()), facts(*op).random) << call.name;
  }
}

TEST(Facts, RandomnessCanBeOff) {
  const at::Tensor x = torch::rand({4, 5});
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = generator.get_state().clone();
  torch::jit::Stack stack = {x, 0.5, false};
  Operator::find("aten.native_dropout")->handle().callBoxed(stack);
  EXPECT_TRUE(at::equal(before, generator.get_state()));
  EXPECT_EQ(facts_of("aten.native_dropout").random_if, 2);
}

TEST(Facts, CustomOperatorsHaveDerivedFactsOnly) {
  EXPECT_TRUE(facts_of("ahead_facts_test.pure").pure());
  EXPECT_FALSE(facts_of("ahead_facts_test.unknown").pure()) << "nobody said what it does";
  EXPECT_FALSE(facts_of("ahead_facts_test.writes").pure());
  EXPECT_EQ(facts_of("ahead_facts_test.relu").op_class, OpClass::Opaque);
  EXPECT_EQ(facts_of("aten.relu").op_class, OpClass::Pointwise);
}

TEST(Facts, AreComputedOnceForAllThreads) {
  const Operator* op = Operator::find("aten.sinh");
  std::vector<const OpFacts*> seen(4);
  std::vector<std::thread> threads;
  for (auto& entry : seen) threads.emplace_back([&entry, op] { entry = &facts(*op); });
  for (std::thread& thread : threads) thread.join();
  for (const OpFacts* entry : seen) EXPECT_EQ(entry, seen[0]);
}

/// Its results are new memory unless it returns an argument, or a view of one.
TEST(Aliasing, SubGraphsShareWhatTheyReturnOfTheirArguments) {
  const auto called = std::make_shared<const Graph>(Graph::parse(R"(
graph(%0: f32[4] Primal 0, %1: f32[4] Primal 1):
  %2: f32[4] = aten.mul.Tensor(%0, %1)
  %3: f32[2, 2] = aten.view(%1, [2, 2])
  %4: f32[2, 2] = aten.view(%2, [2, 2])
  return (%2 Output 0, %3 Output 1, %4 Output 2)
)"));
  Graph graph;
  Value* const first = graph.add_input({Slot::Kind::Primal, 0}, called->inputs()[0].value->meta);
  Value* const second = graph.add_input({Slot::Kind::Primal, 1}, called->inputs()[1].value->meta);
  Node* const call = graph.add_node(Operator::call_graph(), {Argument(called), first, second});
  for (const Graph::Output& output : called->outputs()) graph.add_return(call, output.value->meta);
  const Aliasing aliasing(graph);
  const auto group = [&](size_t result) { return aliasing.group(call->result(result)); };
  EXPECT_EQ(group(1), aliasing.group(second));
  EXPECT_EQ(group(0), group(2));
  EXPECT_NE(group(0), group(1));
  EXPECT_NE(group(0), aliasing.group(first));
  EXPECT_NE(aliasing.group(first), aliasing.group(second));
}

}  // namespace facts_test
}  // namespace ahead::ops
