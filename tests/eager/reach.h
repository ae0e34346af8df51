#pragma once

#include <torch/torch.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "eager/harness.h"

/// What the tests of hooks share that a backward of some results only must not call.
namespace ahead::test {

/// What the hooks of each tensor were called with. In which order those of several tensors are
/// called is nobody's promise.
class HookCalls {
 public:
  void watch(const std::string& name, const at::Tensor& tensor) {
    tensor.register_hook([this, name](const at::Tensor& gradient) { note(name, gradient); });
  }
  void watch(const std::string& name, const torch::nn::Module& module) {
    for (const auto& parameter : module.named_parameters())
      watch(name + "." + parameter.key(), parameter.value());
  }
  void note(const std::string& name, const at::Tensor& gradient) {
    calls_[name].push_back(gradient.defined() ? gradient.detach().clone() : gradient);
  }

  /// Logs all calls since the last time.
  void show(Log& log) {
    show(log, [&](const std::string& name, const at::Tensor& gradient) { log(name, gradient); });
  }
  /// The same, but the gradients need only be close.
  void show_close(Log& log) {
    show(log,
         [&](const std::string& name, const at::Tensor& gradient) { log.close(name, gradient); });
  }

 private:
  template <class Show>
  void show(Log& log, const Show& show_gradient) {
    for (auto& [name, gradients] : calls_) {
      log("calls of the hook of " + name, static_cast<double>(gradients.size()));
      for (const at::Tensor& gradient : gradients) {
        gradient.defined() ? show_gradient(name, gradient) : log(name, "undefined");
      }
      gradients.clear();
    }
  }

  std::map<std::string, std::vector<at::Tensor>> calls_;
};

/// A trunk and two heads.
struct TwoHeads {
  torch::nn::Linear trunk{3, 4}, left{4, 2}, right{4, 2};

  std::tuple<at::Tensor, at::Tensor> operator()(const at::Tensor& x) const {
    const at::Tensor hidden = torch::linear(x, trunk->weight, trunk->bias).tanh();
    return {torch::linear(hidden, left->weight, left->bias),
            torch::linear(hidden, right->weight, right->bias)};
  }
  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> all;
    for (const auto& part : {trunk, left, right}) {
      for (const at::Tensor& parameter : part->parameters()) all.push_back(parameter);
    }
    return all;
  }
  void show(Log& log) const {
    log("trunk", *trunk);
    log("left", *left);
    log("right", *right);
  }
};

/// One call of the heads.
struct HeadsCall {
  int number;
  const at::Tensor &l, &r;
  const TwoHeads& net;
  HookCalls& hooks;
  Log& log;
};

/// Calls heads that `prepare(net, hooks)` made ready so often, eagerly and compiled; each time
/// `use(call)` differentiates what it wants of the results. All gradients and calls of hooks must
/// be eager's, and most calls must run from graphs.
template <class Prepare, class Use>
void expect_heads(int num_calls, const Prepare& prepare, const Use& use) {
  expect_hits(like_eager([&](auto& wrap, Log& log) {
    TwoHeads net;
    HookCalls hooks;
    prepare(net, hooks);
    auto heads = wrap([net](const at::Tensor& x) { return net(x); });
    for (int number = 0; number < num_calls; ++number) {
      const auto [l, r] = heads(at::randn({5, 3}));
      use(HeadsCall{number, l, r, net, hooks, log});
      net.show(log);
      hooks.show(log);
    }
  }));
}

/// Gives all leaves of both heads hooks.
inline void watch_heads(const TwoHeads& net, HookCalls& hooks) {
  hooks.watch("left", *net.left);
  hooks.watch("right", *net.right);
}
/// Those of the trunk as well.
inline void watch_all(const TwoHeads& net, HookCalls& hooks) {
  hooks.watch("trunk", *net.trunk);
  watch_heads(net, hooks);
}

}  // namespace ahead::test
