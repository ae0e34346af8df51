#include "compile/custom_op_check.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "ahead/errors.h"
#include "base/log.h"
#include "checkpoint/operator_calls.h"
#include "ops/facts/facts.h"

namespace ahead::runtime {
namespace {

/// Whether this is a custom operator whose schema says that all results are new memory.
bool promises_new_memory(const Operator& op) {
  if (!op.in_dispatcher() || !ops::is_custom(op)) return false;
  const auto is_alias = [](const c10::Argument& result) { return result.alias_info() != nullptr; };
  const std::vector<c10::Argument>& returns = op.schema().returns();
  return std::none_of(returns.begin(), returns.end(), is_alias);
}

bool has_such_operators(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (promises_new_memory(node.op())) return true;
  }
  return false;
}

/// While it lives, looks at the operators that this thread calls.
class AliasWatch {
 public:
  AliasWatch() : outer_(current) {
    current = this;
    callback_ = at::addThreadLocalCallback(at::RecordFunctionCallback(start, end)
                                               .needsInputs(true)
                                               .needsOutputs(true)
                                               .scopes({at::RecordScope::FUNCTION}));
  }
  ~AliasWatch() {
    at::removeCallback(callback_);
    current = outer_;
  }
  AliasWatch(const AliasWatch&) = delete;
  AliasWatch& operator=(const AliasWatch&) = delete;

  /// The broken promises, in words.
  const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  struct Context final : at::ObserverContext {
    const c10::OperatorHandle* op = nullptr;
    std::vector<const c10::StorageImpl*> arguments;
  };

  static std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& call) {
    const Operator* op = operator_of(call);
    if (op == nullptr || !promises_new_memory(*op)) return nullptr;
    auto context = std::make_unique<Context>();
    context->op = &op->handle();
    for (const c10::IValue& input : call.inputs()) {
      for_each_tensor(input, [&](const at::Tensor& tensor) {
        context->arguments.push_back(storage_of(tensor));
      });
    }
    return context;
  }

  static void end(const at::RecordFunction& call, at::ObserverContext* context) {
    if (context == nullptr || current == nullptr) return;
    const auto& started = static_cast<const Context&>(*context);
    current->look_at(started, call.outputs());
  }

  void look_at(const Context& call, const std::vector<c10::IValue>& outputs) {
    std::vector<const c10::StorageImpl*> results;
    for (const c10::IValue& output : outputs) {
      for_each_tensor(output, [&](const at::Tensor& tensor) {
        const c10::StorageImpl* storage = storage_of(tensor);
        if (storage == nullptr) return;
        if (contains(call.arguments, storage)) complain(*call.op, "one of its arguments");
        if (contains(results, storage)) complain(*call.op, "another of its results");
        results.push_back(storage);
      });
    }
  }

  static bool contains(const std::vector<const c10::StorageImpl*>& storages,
                       const c10::StorageImpl* storage) {
    return std::find(storages.begin(), storages.end(), storage) != storages.end();
  }

  void complain(const c10::OperatorHandle& op, const char* with) {
    complaints_.push_back(op.schema().name() + ": this custom operator returned memory of " + with +
                          ", but its schema says that what it returns is new. Return a clone, or "
                          "say so in the schema.");
  }

  static thread_local AliasWatch* current;
  AliasWatch* const outer_;
  at::CallbackHandle callback_ = at::INVALID_CALLBACK_HANDLE;
  std::vector<std::string> complaints_;
};

thread_local AliasWatch* AliasWatch::current = nullptr;

std::vector<at::Tensor> run_checked(const aot::Executable& run, std::vector<at::Tensor>&& args,
                                    SchemaCheck check) {
  const AliasWatch watch;
  std::vector<at::Tensor> results = run(std::move(args));
  for (const std::string& complaint : watch.complaints()) {
    if (check == SchemaCheck::Throw) throw UserError("call", complaint);
    warn_once("[call] " + complaint);
  }
  return results;
}

}  // namespace

aot::GraphCompiler with_custom_op_check(aot::GraphCompiler compiler, SchemaCheck check) {
  if (check == SchemaCheck::Off) return compiler;
  return [compiler = std::move(compiler),
          check](const aot::CompileRequest& request) -> aot::Executable {
    aot::Executable run = compiler(request);
    if (!has_such_operators(request.graph)) return run;
    auto is_first = std::make_shared<std::atomic<bool>>(true);
    return [run = std::move(run), is_first, check](std::vector<at::Tensor>&& args) {
      if (!is_first->load(std::memory_order_relaxed) || !is_first->exchange(false))
        return run(std::move(args));
      return run_checked(run, std::move(args), check);
    };
  };
}

}  // namespace ahead::runtime
