#include "observe/tape/tape.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <unordered_map>

#include "base/same_bits.h"
#include "observe/recorder/recorder.h"
#include "observe/recorder/seen_object.h"
#include "observe/state/entry_state.h"

namespace ahead::observe {
namespace {

bool is_same(const c10::IValue& a, const c10::IValue& b) {
  if (a.tagKind() != b.tagKind()) return false;
  if (const SeenObject* object = SeenObject::in(a))
    return SeenObject::in(b) != nullptr && object->is_same(*SeenObject::in(b));
  if (a.isDouble()) return same_bits(a.toDouble(), b.toDouble());
  if (a.isTensor()) return a.toTensor().is_same(b.toTensor());
  if (a.isDoubleList()) {
    const auto x = a.toDoubleVector(), y = b.toDoubleVector();
    return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin(), same_bits);
  }
  return a == b;
}

std::string text_of(const c10::IValue& value) {
  if (const SeenObject* object = SeenObject::in(value)) return object->str();
  return c10::str(value);
}

std::string name_of(const Step& step) {
  switch (step.kind) {
    case Step::Kind::Call:
      return step.op->op->name();
    case Step::Kind::Read:
      return "a value that is read";
    case Step::Kind::History:
      return "a custom autograd function";
    case Step::Kind::RequiresGrad:
      return "requires_grad_";
    case Step::Kind::SetGrad:
      return "a new .grad";
    case Step::Kind::Data:
      return ".data()";
    case Step::Kind::Fill:
      return "a tensor filled by the host";
    case Step::Kind::Number:
      return "a number";
    case Step::Kind::EnterCheckpoint:
    case Step::Kind::LeaveCheckpoint:
      return "checkpoint";
    case Step::Kind::AddHook:
      return "register_hook";
    case Step::Kind::RemoveHook:
      return "remove_hook";
    case Step::Kind::RetainGrad:
      return "retain_grad";
    case Step::Kind::GoBack:
      return "set_state of a generator";
  }
  return "";
}

bool is_same_contents(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes() || a.strides() != b.strides())
    return false;
  const RecordingPause pause;
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.device().is_cpu() ? std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0
                             : at::equal(x, y);
}

bool is_outcome(const c10::IValue& value) {
  return value.isBool() || value.isInt();
}

bool have_same_edges(const CustomHistory& a, const CustomHistory& b) {
  return a.saved_variables == b.saved_variables &&
         std::equal(a.edges.begin(), a.edges.end(), b.edges.begin(), b.edges.end(),
                    [](const CustomHistory::Edge& x, const CustomHistory::Edge& y) {
                      return x.variable == y.variable && x.number == y.number &&
                             (x.function == nullptr) == (y.function == nullptr);
                    });
}

/// Calls visit(a, b) for each tensor from outside that both use, in whatever order they do.
template <class Visit>
void for_each_common(const Tape& before, const Tape& now, const Visit& visit) {
  std::unordered_map<const c10::TensorImpl*, const CapturedTensor*> known;
  for (const CapturedTensor& captured : before.captured)
    known.emplace(captured.tensor._unsafe_get_target(), &captured);
  for (const CapturedTensor& captured : now.captured) {
    const auto same = known.find(captured.tensor._unsafe_get_target());
    if (same != known.end()) visit(*same->second, captured);
  }
}

/// Whether a leaf that both use had a gradient in one of them only.
bool have_other_grads(const Tape& before, const Tape& now) {
  bool found = false;
  for_each_common(before, now, [&](const CapturedTensor& a, const CapturedTensor& b) {
    found |= a.had_grad != b.had_grad;
  });
  return found;
}

class Comparison {
 public:
  Comparison(const Tape& before, const Tape& now) : before_(before), now_(now) {}

  std::optional<TapeDifference> run() {
    const size_t count = std::min(before_.steps.size(), now_.steps.size());
    for (size_t i = 0; i < count; ++i) {
      TapeDifference found{i};
      found.text = compare(before_.steps[i], now_.steps[i], found.is_outcome);
      if (found.text.empty()) continue;
      found.is_outcome |= !have_same_looks();
      return found;
    }
    if (before_.steps.size() != now_.steps.size()) return differ_in_length(count);
    TapeDifference found{count};
    found.text = compare_ends();
    if (found.text.empty()) return std::nullopt;
    found.is_outcome = !have_same_looks();
    return found;
  }

 private:
  TapeDifference differ_in_length(size_t count) const {
    const bool is_longer = now_.steps.size() > count;
    const Step& next = is_longer ? now_.steps[count] : before_.steps[count];
    return {count,
            is_longer ? "it goes on with " + name_of(next) + ", where it ended before"
                      : "it ends, where it went on with " + name_of(next) + " before",
            !have_same_looks()};
  }

  /// Whether handles that calls assign to had tensors that look the same, and are the same ones.
  bool have_same_held() const {
    for (const HeldTensor& a : before_.held) {
      for (const HeldTensor& b : now_.held) {
        if (a.handle != b.handle) continue;
        if ((a.tensor == nullptr) != (b.tensor == nullptr)) return false;
        if (a.tensor == nullptr) continue;
        if (a.first_same != b.first_same || a.is_pinned != b.is_pinned) return false;
        if (a.look && b.look && !(*a.look == *b.look)) return false;
      }
    }
    return true;
  }

  /// Whether what the first call took numbers from is still there, and as it was.
  bool have_states_of_host() const {
    const auto is_held = [](const HostTaking& each) { return each.is_held; };
    return std::all_of(now_.takings.begin(), now_.takings.end(), is_held) &&
           std::all_of(before_.takings.begin(), before_.takings.end(), [&](const auto& each) {
             const std::shared_ptr<HostState> state = each.state.lock();
             return state != nullptr && is_held(each) && state->guard();
           });
  }

  /// Whether tensors from outside looked the same, and had gradients, when the calls began.
  bool have_same_looks() const {
    if (!have_same_held() || !have_states_of_host()) return false;
    bool is_same = true;
    for_each_common(before_, now_, [&](const CapturedTensor& a, const CapturedTensor& b) {
      is_same &= a.had_grad == b.had_grad && a.look == b.look;
    });
    return is_same;
  }

  std::string compare(const Step& a, const Step& b, bool& outcome) const {
    if (a.kind != b.kind || a.op != b.op) return name_of(b) + " instead of " + name_of(a);
    if (a.is_sized_by_values() && b.is_sized_by_values() && a.looks != b.looks) {
      outcome = a.ins == b.ins;
      return name_of(b) + ": values decide otherwise how large its result is: " + b.looks[0].str() +
             " instead of " + a.looks[0].str();
    }
    if (a.kind == Step::Kind::Read && !is_same(a.args[0], b.args[0])) {
      outcome = is_outcome(a.args[0]) && is_outcome(b.args[0]) && a.ins == b.ins;
      return "a value that is read: " + text_of(b.args[0]) + " instead of " + text_of(a.args[0]);
    }
    if (!(before_.ambients[a.ambient] == now_.ambients[b.ambient]))
      return name_of(b) + ": other modes (grad mode, autocast and the like)";
    if (a.args.size() != b.args.size()) return name_of(b) + ": other arguments";
    for (size_t i = 0; i < a.args.size(); ++i) {
      if (is_same(a.args[i], b.args[i])) continue;
      return name_of(b) + ": argument " + std::to_string(i) + " is " + text_of(b.args[i]) +
             " instead of " + text_of(a.args[i]);
    }
    if (a.ins != b.ins || a.outs != b.outs || a.number != b.number || a.is_apart != b.is_apart)
      return name_of(b) + ": other tensors";
    if (!is_same_contents(a.contents, b.contents)) return name_of(b) + ": other contents";
    if (a.hook != nullptr && !a.hook->is_same(*b.hook))
      return name_of(b) + ": the hook captures other values";
    if (a.history != nullptr && !have_same_edges(*a.history, *b.history))
      return name_of(b) + ": other tensors";
    return "";
  }

  std::string compare_ends() const {
    if (before_.result_spec != now_.result_spec)
      return "it returns " + now_.result_spec + " instead of " + before_.result_spec;
    if (before_.results != now_.results) return "it returns other tensors";
    if (before_.captured.size() != now_.captured.size())
      return "it uses other tensors from outside";
    if (!have_same_takings()) return "it takes numbers from another state of the host's";
    for (size_t i = 0; i < now_.captured.size(); ++i) {
      const std::string text = compare(before_.captured[i], now_.captured[i]);
      if (!text.empty()) return text;
    }
    if (before_.stored.size() != now_.stored.size())
      return "it stores other tensors outside itself";
    for (size_t i = 0; i < now_.stored.size(); ++i) {
      if (before_.stored[i].id != now_.stored[i].id)
        return "it stores other tensors outside itself";
      if (before_.stored[i].handles != now_.stored[i].handles)
        return "it stores a tensor somewhere else";
    }
    return before_.moved == now_.moved ? "" : "it assigns other tensors to its own";
  }

  bool have_same_takings() const {
    return std::equal(before_.takings.begin(), before_.takings.end(), now_.takings.begin(),
                      now_.takings.end(), [](const HostTaking& a, const HostTaking& b) {
                        return a.is_of(b.state) && a.ahead == b.ahead;
                      });
  }

  static std::string compare(const CapturedTensor& a, const CapturedTensor& b) {
    if (a.id != b.id) return "it uses other tensors from outside";
    if (!(a.look == b.look))
      return "it uses a tensor from outside that is " + b.look.str() + " instead of " +
             a.look.str();
    if (a.handle != b.handle || a.host != b.host) return "it uses other tensors from outside";
    if (a.handle || a.host) return "";
    if (a.stored_before != no_variable && a.stored_before == b.stored_before) return "";
    if (a.tensor._unsafe_get_target() == b.tensor._unsafe_get_target()) return "";
    if (a.grad_of != nullptr && a.grad_of == b.grad_of) return "";
    if (a.contents.defined() && b.contents.defined())
      return is_same_contents(a.contents, b.contents)
                 ? ""
                 : "a tensor that the host makes inside the function has other contents";
    return "it uses another tensor from outside: " +
           (b.tensor.use_count() == 0 ? std::string("one that is made in each call")
                                      : TensorMeta::of(lock(b.tensor)).str());
  }

  const Tape &before_, &now_;
};

}  // namespace

bool Tape::assigns(Handle handle) const {
  const auto is_in = [&](const StoredTensor& each) {
    return std::find(each.handles.begin(), each.handles.end(), handle) != each.handles.end();
  };
  return std::any_of(stored.begin(), stored.end(), is_in) ||
         std::any_of(moved.begin(), moved.end(),
                     [&](const MovedTensor& each) { return each.to == handle; });
}

bool Tape::stores(const void* tensor) const {
  return std::any_of(stored.begin(), stored.end(), [&](const StoredTensor& each) {
    return each.tensor._unsafe_get_target() == tensor;
  });
}

size_t Tape::num_stored_anywhere() const {
  return static_cast<size_t>(std::count_if(
      stored.begin(), stored.end(), [](const StoredTensor& each) { return each.handles.empty(); }));
}

bool have_same_contents(const Tape& before, const Tape& now) {
  const auto is_same = [](const auto& a, const auto& b) {
    return is_same_contents(a.contents, b.contents);
  };
  const auto is_same_step = [&](const Step& a, const Step& b) {
    const bool has_hook = a.hook != nullptr && b.hook != nullptr;
    return is_same(a, b) && (has_hook ? a.hook->is_same(*b.hook) : a.hook == b.hook);
  };
  return std::equal(before.steps.begin(), before.steps.end(), now.steps.begin(), now.steps.end(),
                    is_same_step) &&
         std::equal(before.captured.begin(), before.captured.end(), now.captured.begin(),
                    now.captured.end(), is_same);
}

std::optional<TapeDifference> difference(const Tape& before, const Tape& now) {
  std::optional<TapeDifference> found = Comparison(before, now).run();
  if (found) found->has_other_grads = have_other_grads(before, now);
  return found;
}

}  // namespace ahead::observe
