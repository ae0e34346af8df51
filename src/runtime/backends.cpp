#include "runtime/backends.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <map>
#include <mutex>

#include "ahead/effect_tokens.h"
#include "ahead/errors.h"
#include "ahead/interpret.h"
#include "base/environment.h"
#include "native/backend.h"
#include "ops/facts/grad_mode.h"

namespace ahead {
namespace {

aot::Executable interpret_graph(const Graph& graph, const std::vector<TensorMeta>&) {
  auto interpreter = std::make_shared<const Interpreter>(graph);
  return {[interpreter](std::vector<at::Tensor>&& args) { return (*interpreter)(std::move(args)); },
          [interpreter](std::vector<at::Tensor>&& args) {
            return interpreter->begin(std::move(args));
          }};
}

/// What a backend has to return, whatever it is given.
class ExpectedOutputs {
 public:
  explicit ExpectedOutputs(const aot::CompileRequest& request) : name_(request.name) {
    for (const Graph::Output& output : request.graph.outputs())
      are_defined_.push_back(output.value != nullptr);
    for (const Node& node : request.graph.nodes())
      depend_on_grad_mode_ |= ops::depends_on_grad_mode(node);
  }

  bool depend_on_grad_mode() const { return depend_on_grad_mode_; }

  void check(const std::vector<at::Tensor>& outputs) const {
    if (outputs.size() != are_defined_.size()) {
      throw UserError("backend", name_ + ": the backend returned " +
                                     std::to_string(outputs.size()) + " tensors, its graph has " +
                                     std::to_string(are_defined_.size()) +
                                     " outputs. It must return one for each.");
    }
    for (size_t i = 0; i < outputs.size(); ++i) check(i, outputs[i]);
  }
  /// Some of the outputs.
  void check(c10::ArrayRef<int32_t> numbers, const std::vector<at::Tensor>& outputs) const {
    if (outputs.size() != numbers.size()) {
      throw UserError("backend", name_ + ": the backend handed over " +
                                     std::to_string(outputs.size()) + " tensors where " +
                                     std::to_string(numbers.size()) + " were asked for.");
    }
    for (size_t i = 0; i < outputs.size(); ++i) check(static_cast<size_t>(numbers[i]), outputs[i]);
  }

 private:
  void check(size_t number, const at::Tensor& output) const {
    if (output.defined() || !are_defined_[number]) return;
    throw UserError("backend", name_ + ": the backend returned an undefined tensor for output " +
                                   std::to_string(number) + ", which its graph computes.");
  }

  std::string name_;
  std::vector<bool> are_defined_;
  bool depend_on_grad_mode_ = false;
};

/// Around a backend's code. Views and casts are in the graph already; LibTorch would record and
/// make them once more. Grad mode is off, except for kernels that decide by it whether to prepare a
/// backward.
struct BelowAutograd {
  explicit BelowAutograd(const ExpectedOutputs& expected)
      : mode(expected.depend_on_grad_mode() && at::GradMode::is_enabled()) {}
  at::AutoGradMode mode;
  at::AutoDispatchBelowADInplaceOrView below_views;
  c10::impl::ExcludeDispatchKeyGuard below_autocast{c10::autocast_dispatch_keyset};
};

void detach_all(std::vector<at::Tensor>& args) {
  for (at::Tensor& arg : args) {
    if (arg.defined() && arg.requires_grad()) arg = arg.detach();
  }
}

/// A run of a user's backend.
class CheckedRun final : public aot::GraphRun {
 public:
  CheckedRun(std::unique_ptr<aot::GraphRun> run, std::shared_ptr<const ExpectedOutputs> expected)
      : run_(std::move(run)), expected_(std::move(expected)) {
    if (run_ == nullptr)
      throw UserError("backend",
                      "begin: the backend returned no run. It must return one, or throw.");
  }

  std::vector<at::Tensor> until(c10::ArrayRef<int32_t> outputs) override {
    const BelowAutograd below(*expected_);
    std::vector<at::Tensor> made = run_->until(outputs);
    expected_->check(outputs, made);
    return made;
  }
  bool will_read(size_t input) const override { return run_->will_read(input); }
  void finish() override {
    const BelowAutograd below(*expected_);
    run_->finish();
  }

 private:
  const std::unique_ptr<aot::GraphRun> run_;
  const std::shared_ptr<const ExpectedOutputs> expected_;
};

struct Backend {
  aot::GraphCompiler compiler;
  BackendTraits traits;
};

class Registry {
 public:
  /// Never freed: static destructors may compile something.
  static Registry& instance() {
    static auto* registry = new Registry;
    return *registry;
  }

  void add(const std::string& name, Backend backend) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!backends_.emplace(name, std::move(backend)).second) {
      throw UserError("backend", name + ": there is a backend of this name. Choose another one.");
    }
  }

  Backend find(const std::string& name) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto known = backends_.find(name);
    if (known != backends_.end()) return known->second;
    std::string names;
    for (const auto& [other, backend] : backends_) names += (names.empty() ? "" : ", ") + other;
    throw UserError("backend", name + ": there is no backend of this name. Known are " + names +
                                   "; others are added with ahead::register_backend.");
  }

  std::vector<std::string> names() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, backend] : backends_) names.push_back(name);
    return names;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Backend> backends_ = {
      {"interpreter", {interpret_graph, {.takes_sizes = true}}},
      {"native", {native::compile, native::traits()}},
      {"native_strict", {native::compile_strictly, {.takes_sizes = true}}}};
};

}  // namespace

std::string default_backend() {
  static const std::string chosen = environment("AHEAD_BACKEND");
  return chosen.empty() ? "native" : chosen;
}

namespace runtime {

aot::GraphCompiler find_backend(const std::string& name) {
  return Registry::instance().find(name).compiler;
}

BackendTraits traits_of(const std::string& name) {
  return Registry::instance().find(name).traits;
}

aot::GraphCompiler below_autograd(aot::GraphCompiler compiler) {
  return [compiler = std::move(compiler)](const aot::CompileRequest& request) -> aot::Executable {
    aot::Executable run = compiler(request);
    if (!run) {
      throw UserError("backend", request.name +
                                     ": the backend returned an empty Executable. It must return "
                                     "a function that runs the graph, or throw.");
    }
    const auto expected = std::make_shared<const ExpectedOutputs>(request);
    aot::Executable::Begin begin;
    if (run.is_resumable()) {
      begin = [run, expected](std::vector<at::Tensor>&& args) -> std::unique_ptr<aot::GraphRun> {
        const BelowAutograd below(*expected);
        detach_all(args);
        return std::make_unique<CheckedRun>(run.begin(std::move(args)), expected);
      };
    }
    return {[run = std::move(run), expected](std::vector<at::Tensor>&& args) {
              const BelowAutograd below(*expected);
              detach_all(args);
              std::vector<at::Tensor> outputs = run(std::move(args));
              expected->check(outputs);
              return outputs;
            },
            std::move(begin)};
  };
}

}  // namespace runtime

void register_backend(const std::string& name, aot::GraphCompiler compiler, BackendTraits traits) {
  if (!compiler) throw UserError("backend", name + ": it is null. Give a function that compiles.");
  compiler =
      aot::with_effect_tokens(runtime::below_autograd(std::move(compiler)), traits.effect_tokens);
  Registry::instance().add(name, {std::move(compiler), traits});
}

std::vector<std::string> backends() {
  return Registry::instance().names();
}

}  // namespace ahead
