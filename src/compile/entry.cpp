#include "compile/entry.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>

#include "base/same_bits.h"
#include "observe/state/entry_state.h"
#include "observe/state/handles.h"

namespace ahead::detail {
namespace {

template <class Visit>
void for_each_captured(const runtime::CallPlan& plan, Visit&& visit) {
  size_t index = 0;
  for (const runtime::Prologue::Input& input : plan.prologue->inputs) {
    if (input.kind == runtime::Prologue::Input::Kind::Captured) visit(index++, input.captured);
  }
}

}  // namespace

CallKind::CallKind(const Situation& now, compiling::ModuleWatch::Readings module_readings,
                   std::shared_ptr<const Dependence::Value> value,
                   const std::shared_ptr<const runtime::CallPlan>& call_plan,
                   const std::vector<at::Tensor>& arguments, bool with_offsets)
    : spec(now.inputs.spec),
      wrapped(now.outer == nullptr ? std::nullopt : std::optional<WrappedLayout>(*now.outer)),
      ambient(now.ambient),
      modules(std::move(module_readings)),
      dependence(std::move(value)),
      plan(call_plan),
      guard(*call_plan, arguments, with_offsets) {}

bool is_special(double number) {
  return !std::isfinite(number) || number == 0 || number == 1 || number == -1;
}

bool CallKind::has_structure(const TreeSpec& now) const {
  if (free_reals.empty()) return spec == now;
  if (!spec.is_like(now)) return false;
  const std::vector<double> before = spec.reals(), reals = now.reals();
  for (size_t i = 0; i < reals.size(); ++i) {
    if (free_reals[i] ? is_special(reals[i]) : !same_bits(before[i], reals[i])) return false;
  }
  return true;
}

bool CallKind::fits(const Situation& now, const compiling::ModuleWatch& watch,
                    const Dependence& depends_on, const std::vector<at::Tensor>& arguments) const {
  if (wrapped ? now.outer == nullptr || !wrapped->holds(*now.outer) : now.outer != nullptr)
    return false;
  return ambient == now.ambient && watch.holds(modules) && guard.holds(*plan, arguments) &&
         has_structure(now.inputs.spec) && (dependence == nullptr || depends_on.is(*dependence));
}

bool CallKind::fits_but_for_sizes(const Situation& now, const compiling::ModuleWatch& watch,
                                  const Dependence& depends_on,
                                  const std::vector<at::Tensor>& arguments) const {
  return !wrapped && now.outer == nullptr && ambient == now.ambient && watch.holds(modules) &&
         guard.holds_but_for_sizes(*plan, arguments) && has_structure(now.inputs.spec) &&
         (dependence == nullptr || depends_on.is(*dependence));
}

std::string CallKind::reason(const Situation& now, const compiling::ModuleWatch& watch,
                             const Dependence& depends_on,
                             const std::vector<at::Tensor>& arguments) const {
  if (!has_structure(now.inputs.spec))
    return "made for " + spec.str() + ", not for " + now.inputs.spec.str();
  if (ambient != now.ambient) return ambient.difference(now.ambient);
  if (!watch.holds(modules))
    return "a module was switched between train() and eval(), drops with another probability, or "
           "announced a number that is another one now";
  if (dependence != nullptr && !depends_on.is(*dependence))
    return "Options::depends_on was " + dependence->str() + " and is " + depends_on.value()->str();
  if (wrapped ? now.outer == nullptr || !wrapped->holds(*now.outer) : now.outer != nullptr)
    return "an argument is a wrapper of another class, metadata or look";
  return guard.reason(*plan, arguments);
}

std::optional<std::vector<std::shared_ptr<HostState>>> states_of_host(const observe::Tape& tape) {
  std::vector<std::shared_ptr<HostState>> states;
  for (const observe::HostTaking& taking : tape.takings) {
    std::shared_ptr<HostState> state = taking.state.lock();
    if (state == nullptr || (taking.ahead == 0 && !state->guard())) return std::nullopt;
    states.push_back(std::move(state));
  }
  return states;
}

std::optional<std::vector<at::Tensor>> Entry::arguments(const Situation& now) const {
  const std::shared_ptr<const Seen> last = seen.load();
  const auto hosts = states_of_host(*last->tape);
  if (!hosts) return std::nullopt;
  std::vector<std::vector<at::Tensor>> numbers;
  for (size_t i = 0; i < hosts->size(); ++i)
    numbers.push_back((*hosts)[i]->inputs(last->tape->takings[i].ahead));
  std::vector<at::Tensor> all = now.inputs.leaves;
  if (!last->tape->held.empty()) {
    if (now.host == nullptr || !last->host.holds(*now.host) ||
        !observe::holds(last->tape->held, *now.host))
      return std::nullopt;
  }
  for (const StateArgument& state : last->arguments) {
    if (state.host) {
      std::vector<at::Tensor>& taken = numbers[state.host->taking];
      if (state.host->index >= taken.size()) return std::nullopt;
      all.push_back(std::move(taken[state.host->index]));
      continue;
    }
    all.push_back(state.handle ? observe::handle_at(*now.host, *state.handle)
                               : observe::lock(state.object));
    if (!all.back().defined()) return std::nullopt;
  }
  return all;
}

std::shared_ptr<const runtime::CallPlan> Entry::plan_for(const TreeSpec& now) const {
  if (compiled.free.empty()) return kind.plan;
  const std::vector<double> reals = now.reals();
  std::vector<int64_t> sizes = compiled.sizes;
  for (const compiling::FreeNumber& number : compiled.free) {
    sizes[number.symbol] = bits_of(reals[number.real]);
  }
  if (sizes == compiled.sizes) return kind.plan;
  return std::make_shared<const runtime::CallPlan>(compiled.sized->with_numbers(*kind.plan, sizes));
}

bool Entry::fits(const Situation& now, const compiling::ModuleWatch& watch,
                 const Dependence& depends_on) const {
  for (const Pinned& pin : pinned) {
    if (pin.is_void.load(std::memory_order_relaxed)) continue;
    if (pin.argument >= now.arguments().size()) return false;
    const c10::TensorImpl* given = now.arguments()[pin.argument].unsafeGetTensorImpl();
    const bool is_held = pin.handle && now.host != nullptr;
    if (given != (is_held ? observe::handle_at(*now.host, *pin.handle).unsafeGetTensorImpl()
                          : pin.tensor._unsafe_get_target()))
      return false;
  }
  for (const Grad& grad : grads) {
    const at::Tensor tensor = observe::lock(grad.tensor);
    if (tensor.defined() && (observe::peek_grad(tensor) != nullptr) != grad.is_defined)
      return false;
  }
  for (const Hooks& hooked : hooks) {
    const at::Tensor tensor = observe::lock(hooked.tensor);
    if (tensor.defined() && observe::count_hooks(tensor) != hooked.count) return false;
  }
  if (wrapped != nullptr) {
    now.apart = wrapped->arguments(now.arguments());
    return now.apart && kind.fits(now, watch, depends_on, now.apart->plain);
  }
  if (!has_state) return kind.fits(now, watch, depends_on, now.inputs.leaves);
  const auto all = arguments(now);
  return all && kind.fits(now, watch, depends_on, *all);
}

std::string Entry::reason(const Situation& now, const compiling::ModuleWatch& watch,
                          const Dependence& depends_on) const {
  if (wrapped != nullptr) {
    const auto apart = wrapped->arguments(now.arguments());
    if (!apart) return "an argument or a captured wrapper is made in another way, or is gone";
    return kind.reason(now, watch, depends_on, apart->plain);
  }
  if (!has_state) return kind.reason(now, watch, depends_on, now.inputs.leaves);
  if (const auto all = arguments(now)) return kind.reason(now, watch, depends_on, *all);
  if (!states_of_host(*seen.load()->tape))
    return "an optimizer, or another state of the host's, is gone or has other parameters, tensors "
           "or options";
  return kind_by_arguments->reason(now, watch, depends_on, now.inputs.leaves);
}

void Entry::drop_pins(const std::vector<at::Tensor>& arguments,
                      const observe::HostSnapshot& before) {
  for (Pinned& pin : pinned) {
    const void* expected =
        pin.handle ? before.pointer_at(*pin.handle) : pin.tensor._unsafe_get_target();
    if (arguments[pin.argument].unsafeGetTensorImpl() != expected) pin.is_void.store(true);
  }
}

void Entry::take_over(const Entry& other, std::shared_ptr<const runtime::CallPlan> plan,
                      std::vector<int64_t> sizes) {
  prototype = other.prototype;
  compiled = other.compiled;
  compiled.plan = std::move(plan);
  compiled.sizes = std::move(sizes);
  grads = other.grads;
  hooks = other.hooks;
  leaves_without_grads = other.leaves_without_grads;
  seen.store(other.seen.load());
  is_trusted = true;
  const auto copy = [](const std::vector<std::atomic<size_t>>& counts) {
    std::vector<std::atomic<size_t>> copied(counts.size());
    for (size_t i = 0; i < counts.size(); ++i) copied[i].store(counts[i].load());
    return copied;
  };
  owners = copy(other.owners);
  owners_of_objects = copy(other.owners_of_objects);
}

void Entry::count_owners() {
  if (owners.empty()) {
    size_t count = 0;
    for_each_captured(*kind.plan, [&](size_t, const at::Tensor&) { ++count; });
    owners = std::vector<std::atomic<size_t>>(count);
  }
  for_each_captured(*kind.plan, [&](size_t i, const at::Tensor& tensor) {
    owners[i].store(tensor.use_count(), std::memory_order_relaxed);
  });
}

void Entry::count_owners_of_objects() {
  const bool is_first = owners_of_objects.size() != compiled.objects.size();
  if (is_first) owners_of_objects = std::vector<std::atomic<size_t>>(compiled.objects.size());
  for (size_t i = 0; i < compiled.objects.size(); ++i) {
    const size_t now = compiled.objects[i].use_count();
    const size_t fewest = is_first ? now : std::min(now, owners_of_objects[i].load());
    owners_of_objects[i].store(fewest, std::memory_order_relaxed);
  }
}

void Entry::add_owners(const runtime::CallPlan& plan) {
  for_each_captured(plan, [&](size_t, const at::Tensor& held) {
    for_each_captured(*kind.plan, [&](size_t i, const at::Tensor& tensor) {
      if (tensor.is_same(held)) owners[i].fetch_add(1, std::memory_order_relaxed);
    });
  });
}

void Entry::count_owners(const observe::Tape& tape) {
  for_each_captured(*kind.plan, [&](size_t i, const at::Tensor& tensor) {
    for (const observe::CapturedTensor& captured : tape.captured) {
      if (captured.tensor._unsafe_get_target() != tensor.unsafeGetTensorImpl()) continue;
      owners[i].store(std::min(owners[i].load(), captured.owners), std::memory_order_relaxed);
    }
  });
}

std::vector<size_t> Entry::owners_now() const {
  std::vector<size_t> all;
  for_each_captured(*kind.plan,
                    [&](size_t, const at::Tensor& tensor) { all.push_back(tensor.use_count()); });
  return all;
}

void Entry::lower_owners(const std::vector<size_t>& before) {
  for (size_t i = 0; i < std::min(owners.size(), before.size()); ++i)
    owners[i].store(std::min(owners[i].load(), before[i]), std::memory_order_relaxed);
}

Entry::Holders::Holders(const observe::WeakTensor& weak) : of_tensor(weak.use_count()) {
  const at::Tensor tensor = observe::lock(weak);
  if (!tensor.defined() || !tensor.is_leaf()) return;
  const NodePtr node = torch::autograd::impl::try_get_grad_accumulator(tensor);
  if (node) of_accumulator = static_cast<size_t>(node.use_count()) - 1;
}

void Entry::count_owners(const observe::Tape& tape, const std::vector<Holders>& before) {
  count_owners();
  for_each_captured(*kind.plan, [&](size_t i, const at::Tensor& tensor) {
    for (size_t k = 0; k < tape.captured.size(); ++k) {
      const observe::CapturedTensor& captured = tape.captured[k];
      if (captured.tensor._unsafe_get_target() != tensor.unsafeGetTensorImpl()) continue;
      const Holders now(captured.tensor);
      size_t own = now.of_tensor - std::min(before[k].of_tensor, now.of_tensor);
      // The AccumulateGrad was there before, and now this entry holds it, too.
      if (before[k].of_accumulator != 0 && now.of_accumulator > before[k].of_accumulator) ++own;
      owners[i].store(captured.owners + own, std::memory_order_relaxed);
    }
  });
}

bool Entry::lost_an_owner() const {
  bool lost = false;
  for_each_captured(*kind.plan, [&](size_t i, const at::Tensor& tensor) {
    lost |= tensor.use_count() < owners[i].load(std::memory_order_relaxed);
  });
  for (size_t i = 0; i < owners_of_objects.size(); ++i)
    lost |= compiled.objects[i].use_count() < owners_of_objects[i].load(std::memory_order_relaxed);
  return lost;
}

}  // namespace ahead::detail
