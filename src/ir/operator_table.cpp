#include <ATen/core/dispatch/Dispatcher.h>

#include <mutex>
#include <unordered_map>

#include "ahead/errors.h"
#include "ahead/graph.h"
#include "base/thread_object.h"
#include "ir/operator_maker.h"
#include "ir/operator_name.h"

namespace ahead {

std::string printed_name(const c10::OperatorName& name) {
  std::string text = name.name;
  if (size_t colons = text.find("::"); colons != std::string::npos) text.replace(colons, 2, ".");
  if (!name.overload_name.empty()) text += "." + name.overload_name;
  return text;
}

/// The operator interned for a handle. A handle is an address, and another operator may be
/// registered at the address of one that was removed: the name tells them apart.
struct Known {
  c10::OperatorName name{"", ""};
  const Operator* op = nullptr;

  bool is(const c10::OperatorHandle& handle) const {
    return op != nullptr && name == handle.operator_name();
  }
};

/// Interns operators. Entries live as long as the process.
class OperatorTable {
 public:
  static OperatorTable& instance() {
    static OperatorTable* table = new OperatorTable;
    return *table;
  }

  const Operator& intern(const c10::OperatorHandle& handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    Known& known = by_handle_[handle];
    if (!known.is(handle)) {
      const c10::OperatorName& name = handle.operator_name();
      known = {name, add(printed_name(name), std::make_shared<const c10::OperatorHandle>(handle))};
    }
    return *known.op;
  }

  const Operator& call_graph() const { return *call_graph_; }

 private:
  OperatorTable() : call_graph_(add("ahead.call", nullptr)) {}

  const Operator* add(std::string name, std::shared_ptr<const c10::OperatorHandle> handle) {
    Operator& op = operators_.emplace_back(Operator());
    op.name_ = std::move(name);
    op.id_ = static_cast<uint32_t>(operators_.size() - 1);
    op.handle_ = std::move(handle);
    return &op;
  }

  std::mutex mutex_;
  std::deque<Operator> operators_;
  std::unordered_map<c10::OperatorHandle, Known> by_handle_;
  const Operator* call_graph_;
};

namespace {

struct Maker {
  std::string_view prefix;
  OperatorMaker make;
};

/// Filled before main() begins, by static initialisers.
std::vector<Maker>& makers() {
  static auto* all = new std::vector<Maker>;
  return *all;
}

const Operator* make_missing(std::string_view name) {
  for (const Maker& maker : makers()) {
    if (name.starts_with(maker.prefix)) return maker.make(name);
  }
  return nullptr;
}

}  // namespace

void make_on_demand(std::string_view prefix, OperatorMaker make) {
  makers().push_back({prefix, make});
}

const Operator& Operator::of(const c10::OperatorHandle& handle) {
  auto& seen =
      thread_object<std::unordered_map<c10::OperatorHandle, Known>, struct SeenOperators>();
  Known& known = seen[handle];
  if (!known.is(handle)) {
    known = {handle.operator_name(), &OperatorTable::instance().intern(handle)};
  }
  return *known.op;
}

const Operator& Operator::call_graph() {
  return OperatorTable::instance().call_graph();
}

const Operator* Operator::find(std::string_view name) {
  if (name == call_graph().name()) return &call_graph();
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return nullptr;
  const size_t overload = name.find('.', dot + 1);
  std::string base(name.substr(0, dot));
  base.append("::").append(
      name.substr(dot + 1, overload == std::string_view::npos ? overload : overload - dot - 1));
  std::string suffix(overload == std::string_view::npos ? "" : name.substr(overload + 1));
  auto handle = c10::Dispatcher::singleton().findSchema({std::move(base), std::move(suffix)});
  return handle ? &of(*handle) : make_missing(name);
}

const c10::FunctionSchema& Operator::schema() const {
  if (!handle_) throw InternalError("ir", name_ + ": an operator of Ahead's own has no schema.");
  return handle_->schema();
}

}  // namespace ahead
