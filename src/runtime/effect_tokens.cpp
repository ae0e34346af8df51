#include "ahead/effect_tokens.h"

#include <ATen/EmptyTensor.h>

#include "ahead/errors.h"

namespace ahead::aot {
namespace {

/// Where the token of a graph is: before all other inputs and outputs, or behind them.
enum class Place : uint8_t { First, Last };

template <class Items, class Item>
void add(Items& items, Place place, Item item) {
  items.insert(place == Place::First ? items.begin() : items.end(), std::move(item));
}

void give_token(std::vector<at::Tensor>& args, Place place) {
  add(args, place, at::Tensor(at::detail::empty_cpu({0}, at::kFloat)));
}

void take_token(std::vector<at::Tensor>& outputs, Place place, const std::string& name) {
  const at::Tensor& token = place == Place::First ? outputs.front() : outputs.back();
  if (!token.defined() || token.numel() != 0) {
    throw UserError("backend", name +
                                   ": the backend returned something else where its graph returns "
                                   "a token. A token is a tensor without elements.");
  }
  outputs.erase(place == Place::First ? outputs.begin() : outputs.end() - 1);
}

/// A run whose caller knows nothing of the token.
class TokenRun final : public GraphRun {
 public:
  TokenRun(std::unique_ptr<GraphRun> run, Place place)
      : run_(std::move(run)), first_(place == Place::First ? 1 : 0) {}

  std::vector<at::Tensor> until(c10::ArrayRef<int32_t> outputs) override {
    std::vector<int32_t> numbers = outputs.vec();
    for (int32_t& number : numbers) number += first_;
    return run_->until(numbers);
  }
  bool will_read(size_t input) const override {
    return run_->will_read(input + static_cast<size_t>(first_));
  }
  void finish() override { run_->finish(); }

 private:
  const std::unique_ptr<GraphRun> run_;
  const int32_t first_;
};

Executable without_token(Executable run, Place place, const std::string& name) {
  Executable::Begin begin;
  if (run.is_resumable()) {
    begin = [run, place](std::vector<at::Tensor>&& args) -> std::unique_ptr<GraphRun> {
      give_token(args, place);
      return std::make_unique<TokenRun>(run.begin(std::move(args)), place);
    };
  }
  return {[run = std::move(run), place, name](std::vector<at::Tensor>&& args) {
            give_token(args, place);
            std::vector<at::Tensor> outputs = run(std::move(args));
            take_token(outputs, place, name);
            return outputs;
          },
          std::move(begin)};
}

}  // namespace

GraphCompiler with_effect_tokens(GraphCompiler compiler, EffectTokens tokens) {
  if (tokens == EffectTokens::None) return compiler;
  return [compiler = std::move(compiler), tokens](const CompileRequest& request) -> Executable {
    Graph graph(request.graph);
    if (lift_effect_tokens(graph) == 0) return compiler(request);
    CompileRequest lifted{graph,          request.inputs, request.donated, request.static_inputs,
                          request.target, request.name};
    if (tokens == EffectTokens::Inside) {
      unlift_effect_tokens(graph);
      return compiler(lifted);
    }
    const int64_t position = graph.find_input({Slot::Kind::Token, 0});
    const Place place = position == 0 ? Place::First : Place::Last;
    const Graph::Input& token = graph.inputs()[static_cast<size_t>(position)];
    add(lifted.inputs, place, token.value->meta);
    for (std::vector<bool>* flags : {&lifted.donated, &lifted.static_inputs}) {
      if (!flags->empty()) add(*flags, place, false);
    }
    return without_token(compiler(lifted), place, request.name);
  };
}

}  // namespace ahead::aot
