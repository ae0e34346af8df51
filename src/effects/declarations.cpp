#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

#include "ahead/effects.h"
#include "ahead/errors.h"
#include "ahead/graph.h"
#include "base/log.h"
#include "ir/operator_hint.h"
#include "ops/facts/facts.h"

namespace ahead {
namespace {

using ops::Declared;

/// `my::log` as graphs print it.
std::string in_graphs(std::string name) {
  if (const size_t colons = name.find("::"); colons != std::string::npos)
    name.replace(colons, 2, ".");
  return name;
}

/// The operators of that name: the one with the overload that it has, or all of them.
std::vector<const Operator*> operators_named(const std::string& name) {
  const std::string printed = in_graphs(name);
  const size_t space = printed.find('.');
  const bool has_overload =
      space != std::string::npos && printed.find('.', space + 1) != std::string::npos;
  std::vector<const Operator*> found;
  if (has_overload) {
    if (const Operator* op = Operator::find(printed)) found.push_back(op);
  } else {
    for (const c10::OperatorName& known : c10::Dispatcher::singleton().getAllOpNames()) {
      if (in_graphs(known.name) != printed) continue;
      if (const auto handle = c10::Dispatcher::singleton().findSchema(known))
        found.push_back(&Operator::of(*handle));
    }
  }
  if (!found.empty()) return found;
  throw UserError("effects",
                  name + ": there is no operator of this name. " + operator_hint(printed));
}

bool returns_views(const Operator& op) {
  for (const c10::Argument& result : op.schema().returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

void check_effect(const Operator& op) {
  if (!returns_views(op)) return;
  throw UserError("effects", op.name() +
                                 ": Ops with aliasing is not supported: its results are views of "
                                 "its arguments. Return new memory, or declare another operator.");
}

void check_pure(const Operator& op) {
  const ops::OpFacts& facts = ops::facts(op);
  const bool writes = !facts.writes.empty() || !facts.hidden_writes.empty();
  if (!writes && !op.schema().returns().empty()) return;
  throw UserError("effects", op.name() +
                                 (writes ? ": it writes to an argument, so that it is not pure."
                                         : ": it returns nothing: without an effect it would do "
                                           "nothing.") +
                                 " Declare operators pure that only compute what they return.");
}

void declare(const std::string& name, Declared declared, void (*check)(const Operator&)) {
  const std::vector<const Operator*> found = operators_named(name);
  for (const Operator* op : found) check(*op);
  bool is_late = false;
  for (const Operator* op : found) is_late |= ops::declare(*op, declared);
  if (is_late) {
    warn_once("[effects] " + name +
              ": it was called in compiled functions before this was declared. Programs made by "
              "then stay as they are. Declare operators first, or call reset() on the functions.");
  }
}

}  // namespace

void declare_effect(const std::string& name) {
  declare(name, Declared::Effect, check_effect);
}

void declare_pure(const std::string& name) {
  declare(name, Declared::Pure, check_pure);
}

}  // namespace ahead
