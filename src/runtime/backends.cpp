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

class Registry {
 public:
  static Registry& instance() {
    static Registry registry;
    return registry;
  }

  void add(const std::string& name, aot::GraphCompiler compiler) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!compilers_.emplace(name, std::move(compiler)).second) {
      throw UserError("backend", name + ": there is a backend of this name. Choose another one.");
    }
  }

  aot::GraphCompiler find(const std::string& name) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto known = compilers_.find(name);
    if (known != compilers_.end()) return known->second;
    std::string names;
    for (const auto& [other, compiler] : compilers_) names += (names.empty() ? "" : ", ") + other;
    throw UserError("backend", name + ": there is no backend of this name. Known are " + names +
                                   "; others are added with ahead::register_backend.");
  }

  std::vector<std::string> names() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, compiler] : compilers_) names.push_back(name);
    return names;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, aot::GraphCompiler> compilers_ = {{"interpreter", interpret_graph}};
};

}  // namespace

namespace runtime {

aot::GraphCompiler find_backend(const std::string& name) {
  return Registry::instance().find(name);
}

aot::GraphCompiler below_autograd(aot::GraphCompiler compiler) {
  return [compiler = std::move(compiler)](const aot::CompileRequest& request) {
    return [run = compiler(request)](std::vector<at::Tensor>&& args) {
      at::NoGradGuard no_grad;
      // Views and casts are in the graph already; LibTorch would record and make them once more.
      at::AutoDispatchBelowADInplaceOrView below_views;
      c10::impl::ExcludeDispatchKeyGuard below_autocast(c10::autocast_dispatch_keyset);
      for (at::Tensor& arg : args) {
        if (arg.defined() && arg.requires_grad()) arg = arg.detach();
      }
      return run(std::move(args));
    };
  };
}

}  // namespace runtime

void register_backend(const std::string& name, aot::GraphCompiler compiler) {
  Registry::instance().add(name, runtime::below_autograd(std::move(compiler)));
}

std::vector<std::string> backends() {
  return Registry::instance().names();
}

}  // namespace ahead
