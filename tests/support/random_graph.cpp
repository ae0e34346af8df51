#include "support/random_graph.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/intern.h"

namespace {

using namespace ahead;  // NOLINT(google-build-using-namespace): a test helper

class Generator {
 public:
  Generator(uint64_t seed, size_t depth) : random_(seed), depth_(depth) {}

  Graph make(size_t num_nodes) {
    const int inputs = 1 + pick(8);
    for (int i = 0; i < inputs; ++i) {
      const auto kind = chance(3) ? Slot::Kind::Captured : Slot::Kind::Primal;
      remember(graph_.add_input({kind, i}, meta()));
    }
    for (size_t i = 0; i < num_nodes; ++i) {
      if (i == num_nodes / 2 && depth_ == 0) start_backward();
      add_node();
    }
    add_outputs(inputs);
    return std::move(graph_);
  }

 private:
  int pick(int count) { return static_cast<int>(random_() % static_cast<uint64_t>(count)); }
  bool chance(int one_in) { return pick(one_in) == 0; }

  void remember(Value* value) {
    if (value == nullptr) return;
    values_.push_back(value);
  }

  void start_backward() {
    phase_ = Phase::Backward;
    // Tangents name outputs; the first outputs are results.
    for (int i = 0; i < 2; ++i) {
      remember(graph_.add_input({Slot::Kind::Tangent, i}, meta()));
    }
  }

  Value* value() { return values_[static_cast<size_t>(pick(static_cast<int>(values_.size())))]; }

  Argument tensor(bool optional = false) {
    if (optional && chance(3)) return c10::IValue();
    if (chance(6)) return number();
    return value();
  }

  Argument number() {
    static const double doubles[] = {0.0,  -0.0,   0.1,      1e300,     5e-324, 1.0 / 3.0,
                                     1e16, -2.5e7, INFINITY, -INFINITY, NAN,    123456789.0};
    switch (pick(5)) {
      case 0:
        return static_cast<int64_t>(random_());
      case 1:
        return doubles[pick(std::size(doubles))];
      case 2:
        return chance(2);
      case 3:
        return c10::IValue(c10::complex<double>(doubles[pick(6)], doubles[pick(6)]));
      default:
        return pick(10) - 5;
    }
  }

  Argument dims() {
    std::vector<int64_t> list(static_cast<size_t>(pick(4)));
    for (int64_t& dim : list) dim = pick(9) - 2;
    return c10::IValue(list);
  }

  Argument list(bool optional) {
    Argument::List list;
    for (int i = pick(5); i > 0; --i) list.push_back(tensor(optional));
    return list;
  }

  template <class T>
  Argument maybe(T value) {
    return chance(3) ? c10::IValue() : c10::IValue(value);
  }

  TensorMeta meta() {
    static const at::ScalarType dtypes[] = {at::kFloat,        at::kHalf,         at::kBFloat16,
                                            at::kLong,         at::kBool,         at::kDouble,
                                            at::kComplexFloat, at::kFloat8_e4m3fn};
    static const char* devices[] = {"cpu", "cpu", "cpu", "cuda:0", "meta"};
    TensorMeta::Dims sizes(static_cast<size_t>(pick(5)));
    for (Dim& size : sizes) size = pick(6);
    TensorMeta meta = TensorMeta::contiguous(sizes, dtypes[pick(std::size(dtypes))],
                                             at::Device(devices[pick(std::size(devices))]));
    if (chance(3)) std::reverse(meta.strides.begin(), meta.strides.end());
    if (chance(5)) meta.offset = pick(100);
    meta.requires_grad = chance(4);
    return meta;
  }

  std::optional<TensorMeta> maybe_meta() {
    return chance(8) ? std::nullopt : std::make_optional(meta());
  }

  Node* add(const char* op, std::vector<Argument> args) {
    Node* node = graph_.add_node(*Operator::find(op), std::move(args));
    node->phase = phase_;
    node->set_tags(static_cast<uint16_t>(random_() & random_() & random_() & 0xff));
    if (chance(2)) node->sequence = pick(1000);
    if (chance(8)) node->place = intern("file.cpp:12 f(int) < \"odd\"");
    if (chance(4)) node->provenance = intern(chance(2) ? "MulBackward0" : "odd \"name\"\n\x01");
    return node;
  }

  void add_returns(Node* node, int count) {
    for (int i = 0; i < count; ++i) remember(graph_.add_return(node, maybe_meta()));
  }

  void add_node() {
    switch (pick(11)) {
      case 0:
        return add_returns(add("aten.add.Tensor", {tensor(), tensor(), number()}), 1);
      case 1:
        return add_returns(add("aten.native_layer_norm",
                               {tensor(), dims(), tensor(true), tensor(true), 1.0 / (1 + pick(9))}),
                           3);
      case 2:
        return add_list(add("aten.split.Tensor", {tensor(), 1 + pick(4), pick(3)}));
      case 3:
        return add_returns(add("aten.cat", {list(false), pick(3)}), 1);
      case 4:
        return add_returns(add("aten.index.Tensor", {tensor(), list(true)}), 1);
      case 5:
        return add_returns(add("aten._to_copy", {tensor(), maybe(pick(12)), maybe(pick(3)),
                                                 maybe(at::Device(at::kCUDA, 1)), maybe(true),
                                                 chance(2), maybe(pick(4))}),
                           1);
      case 6:
        return add_returns(
            add("aten.sum.dim_IntList",
                {tensor(), chance(4) ? Argument(c10::IValue()) : dims(), chance(2), maybe(6)}),
            1);
      case 7:
        return add_returns(
            add("aten.convolution_backward",
                {tensor(), tensor(), tensor(), dims(), dims(), dims(), dims(), chance(2), dims(),
                 pick(4), c10::IValue(c10::List<bool>({true, chance(2), false}))}),
            3);
      case 8:
        return add_returns(
            add("aten.gelu", {tensor(), c10::IValue(chance(2) ? "tanh" : "\\odd\"\t\xc3\xa9")}), 1);
      case 9:
        return add_returns(
            add("aten.bernoulli", {tensor(), maybe(at::detail::getDefaultCPUGenerator())}), 1);
      default:
        if (depth_ < 2) add_call();
    }
  }

  void add_list(Node* node) {
    const size_t first = node->results().size();
    std::vector<std::optional<TensorMeta>> metas(static_cast<size_t>(pick(4)));
    for (auto& entry : metas) entry = maybe_meta();
    graph_.add_return_list(node, metas);
    for (size_t i = first; i < node->results().size(); ++i) remember(node->result(i));
  }

  void add_call() {
    auto callee =
        std::make_shared<const Graph>(Generator(random_(), depth_ + 1).make(size_t(pick(5))));
    std::vector<Argument> args{std::shared_ptr<const Graph>(callee)};
    for (const Graph::Input& input : callee->inputs()) {
      Node* operand = add("aten.clone", {value(), c10::IValue()});
      args.emplace_back(graph_.add_return(operand, input.value->meta));
    }
    Node* node = add("ahead.call", std::move(args));
    for (const Graph::Output& output : callee->outputs()) {
      std::optional<TensorMeta> meta;
      if (output.value != nullptr) meta = output.value->meta;
      remember(graph_.add_return(node, meta));
    }
  }

  void add_outputs(int inputs) {
    for (int i = 0; i < 2 + pick(3); ++i) {
      graph_.add_output(chance(5) ? nullptr : value(), {Slot::Kind::Output, i}, chance(2));
    }
    for (int i = 0; i < inputs && depth_ == 0; ++i) {
      const auto kind = chance(3) ? Slot::Kind::MutatedInput : Slot::Kind::GradOf;
      graph_.add_output(chance(3) ? nullptr : value(), {kind, i});
    }
  }

  std::mt19937_64 random_;
  const size_t depth_;
  Graph graph_;
  Phase phase_ = Phase::Forward;
  std::vector<Value*> values_;
};

}  // namespace

Graph random_graph(uint64_t seed, size_t num_nodes) {
  return Generator(seed, 0).make(num_nodes);
}
