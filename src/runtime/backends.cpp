#include "runtime/backends.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <map>
#include <mutex>

#include "ahead/errors.h"
#include "ahead/interpret.h"

namespace ahead {
namespace {

aot::Executable interpret_graph(const Graph& graph, const std::vector<TensorMeta>&) {
  auto interpreter = std::make_shared<const Interpreter>(graph);
  return [interpreter](std::vector<at::Tensor>&& args) { return (*interpreter)(std::move(args)); };
}

/// What a backend has to return, whatever it is given.
class ExpectedOutputs {
 public:
  explicit ExpectedOutputs(const aot::CompileRequest& request) : name_(request.name) {
    for (const Graph::Output& output : request.graph.outputs())
      are_defined_.push_back(output.value != nullptr);
  }

  void check(const std::vector<at::Tensor>& outputs) const {
    if (outputs.size() != are_defined_.size()) {
      throw UserError("backend", name_ + ": the backend returned " +
                                     std::to_string(outputs.size()) + " tensors, its graph has " +
                                     std::to_string(are_defined_.size()) +
                                     " outputs. It must return one for each.");
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].defined() || !are_defined_[i]) continue;
      throw UserError("backend", name_ + ": the backend returned an undefined tensor for output " +
                                     std::to_string(i) + ", which its graph computes.");
    }
  }

 private:
  std::string name_;
  std::vector<bool> are_defined_;
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
      {"interpreter", {interpret_graph, {.takes_sizes = true}}}};
};

}  // namespace

namespace runtime {

aot::GraphCompiler find_backend(const std::string& name) {
  return Registry::instance().find(name).compiler;
}

BackendTraits traits_of(const std::string& name) {
  return Registry::instance().find(name).traits;
}

aot::GraphCompiler below_autograd(aot::GraphCompiler compiler) {
  return [compiler = std::move(compiler)](const aot::CompileRequest& request) {
    aot::Executable run = compiler(request);
    if (!run) {
      throw UserError("backend", request.name +
                                     ": the backend returned an empty Executable. It must return "
                                     "a function that runs the graph, or throw.");
    }
    return [run = std::move(run),
            expected = ExpectedOutputs(request)](std::vector<at::Tensor>&& args) {
      at::NoGradGuard no_grad;
      // Views and casts are in the graph already; LibTorch would record and make them once more.
      at::AutoDispatchBelowADInplaceOrView below_views;
      c10::impl::ExcludeDispatchKeyGuard below_autocast(c10::autocast_dispatch_keyset);
      for (at::Tensor& arg : args) {
        if (arg.defined() && arg.requires_grad()) arg = arg.detach();
      }
      std::vector<at::Tensor> outputs = run(std::move(args));
      expected.check(outputs);
      return outputs;
    };
  };
}

}  // namespace runtime

void register_backend(const std::string& name, aot::GraphCompiler compiler, BackendTraits traits) {
  if (!compiler) throw UserError("backend", name + ": it is null. Give a function that compiles.");
  Registry::instance().add(name, {runtime::below_autograd(std::move(compiler)), traits});
}

std::vector<std::string> backends() {
  return Registry::instance().names();
}

}  // namespace ahead
