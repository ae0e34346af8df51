#include "observe/tape/parts.h"

#include <algorithm>
#include <map>
#include <set>

#include "ahead/errors.h"

namespace ahead::observe {
namespace {

/// Calls visit(index, step, next) for each step that a replay runs, after which `next` follows.
template <class Visit>
void for_each_step(const Tape& tape, size_t begin, size_t end, Visit&& visit) {
  for (size_t i = begin; i < end;) {
    const Step& step = tape.steps[i];
    const bool is_whole = !(step.kind == Step::Kind::Call && step.is_apart);
    const size_t next = step.end > i && is_whole ? step.end : i + 1;
    if (is_whole) visit(i, step, next);
    i = next;
  }
}

/// Calls visit(id) for each variable that a step uses.
template <class Visit>
void for_each_use(const Step& step, Visit&& visit) {
  for (VariableId id : step.ins) visit(id);
  if (step.history == nullptr) return;
  for (VariableId id : step.history->saved_variables) {
    if (id >= no_variable) visit(id);
  }
  for (const CustomHistory::Edge& edge : step.history->edges) visit(edge.variable);
}

[[noreturn]] void refuse(const std::string& what) {
  throw Unsupported("compile", "the function registers a hook, " + what +
                                   ". Register it outside of the compiled function.");
}

class Splitter {
 public:
  explicit Splitter(const Tape& tape)
      : tape_(tape), whole_(whole(tape)), made_in_(static_cast<size_t>(tape.num_variables), -1) {}

  std::vector<Part> run() {
    find_parts();
    if (is_divided(parts_)) check_divisible();
    check_first_hooks();
    for (size_t i = 0; i < parts_.size(); ++i) find_made(i);
    for (size_t i = 0; i < parts_.size(); ++i) connect(i);
    for (VariableId id : whole_.outs) need(id, parts_.size());
    return std::move(parts_);
  }

 private:
  bool is_from_outside(VariableId id) const {
    return id < tape_.num_inputs ||
           std::any_of(tape_.captured.begin(), tape_.captured.end(),
                       [&](const CapturedTensor& captured) { return captured.id == id; });
  }

  /// Whether a hook can never be called: its tensor has no history that outlives the call.
  bool is_lost(const Step& hook) const {
    return hook.is_lost || (!tape_.leaves_history && !is_from_outside(hook.ins[0]));
  }

  /// The first step that a hook can come before.
  size_t place_of(const Step& hook) const {
    return hook.kind == Step::Kind::RemoveHook ? tape_.steps[hook.number].number : hook.number;
  }

  /// Whether a hook captured tensors of the call, and so cannot be registered before these are
  /// made.
  bool captures(const Step& hook) const {
    const Step& added = hook.kind == Step::Kind::RemoveHook ? tape_.steps[hook.number] : hook;
    return added.ins.size() > 1;
  }

  /// Notes each hook by the number of the step before which it is registered; 0: before all steps.
  void find_hooks() {
    for (size_t i = 0; i < tape_.steps.size(); ++i) {
      const Step& hook = tape_.steps[i];
      if (!hook.is_hook() || is_lost(hook)) continue;
      const size_t place = place_of(hook);
      if (place != 0) makers_.insert(place);
      const bool is_new_leaf = place == 0 && !is_from_outside(hook.ins[0]);
      hooks_[is_new_leaf || captures(hook) ? i : place].push_back(i);
    }
  }

  std::vector<size_t> hooks_behind(size_t step, size_t next) const {
    std::vector<size_t> found;
    for (auto hooks = hooks_.upper_bound(step); hooks != hooks_.end() && hooks->first <= next;
         ++hooks)
      found.insert(found.end(), hooks->second.begin(), hooks->second.end());
    return found;
  }

  void find_parts() {
    find_hooks();
    parts_.emplace_back().hooks = hooks_[0];
    size_t begin = 0;
    bool has_work = false;
    const auto close = [&](size_t end, bool is_one_by_one) {
      if (has_work) parts_.push_back({.begin = begin, .end = end, .is_one_by_one = is_one_by_one});
      begin = end;
      has_work = false;
    };
    for_each_step(tape_, 0, tape_.steps.size(), [&](size_t i, const Step& step, size_t next) {
      const auto made = makers_.upper_bound(i);
      const bool is_maker = made != makers_.end() && *made <= next && !step.is_hook();
      if (is_maker) close(i, false);
      has_work |= !step.is_hook();
      const std::vector<size_t> hooks = hooks_behind(i, next);
      if (is_maker || !hooks.empty()) close(next, is_maker);
      parts_.back().hooks.insert(parts_.back().hooks.end(), hooks.begin(), hooks.end());
    });
    close(tape_.steps.size(), false);
    if (parts_.back().end == tape_.steps.size()) parts_.back().last_ambient = tape_.last_ambient;
  }

  void check_divisible() const {
    if (tape_.differentiates) refuse("and takes gradients itself");
    if (!tape_.histories.empty()) refuse("and uses a custom autograd function");
    for (const Ambient& ambient : tape_.ambients) {
      if (!(ambient.autocast == ambient.autocast.off())) refuse("under autocast");
    }
    if (parts_.back().last_ambient != tape_.last_ambient)
      refuse("and leaves grad mode in another state than it found it");
    const auto check = [&](size_t i, const Step& step, size_t) {
      if (step.kind == Step::Kind::EnterCheckpoint) refuse("beside a checkpointed region");
      if (step.kind == Step::Kind::SetGrad) refuse("and sets a .grad");
      if (step.reads_values() && i >= parts_[1].end)
        refuse("and reads a value of a tensor, or lets one decide a size, after that");
    };
    for_each_step(tape_, 0, tape_.steps.size(), check);
  }

  /// If a value that is read is another one, the call ends when only its first hooks have been
  /// registered. These are then removed, which is impossible for retain_grad().
  void check_first_hooks() const {
    const auto is = [](Step::Kind kind) {
      return [kind](const Step& step) { return step.kind == kind; };
    };
    if (std::none_of(tape_.steps.begin(), tape_.steps.end(),
                     [](const Step& step) { return step.reads_values(); }))
      return;
    for (size_t hook : parts_[0].hooks) {
      if (is(Step::Kind::RetainGrad)(tape_.steps[hook]))
        refuse("which lets an argument keep its gradient, and reads values");
    }
  }

  void find_made(size_t part) {
    for_each_step(tape_, parts_[part].begin, parts_[part].end,
                  [&](size_t, const Step& step, size_t) {
                    for (VariableId id : step.outs) {
                      if (id == no_variable || is_from_outside(id)) continue;
                      int32_t& made = made_in_[static_cast<size_t>(id)];
                      if (made < 0) made = static_cast<int32_t>(part);
                    }
                  });
  }

  /// Notes that a variable is used in a part, or after all parts: the part that makes it returns
  /// it.
  void need(VariableId id, size_t part) {
    const int32_t made = id == no_variable ? -1 : made_in_[static_cast<size_t>(id)];
    if (made < 0 || static_cast<size_t>(made) >= part) return;
    add(parts_[static_cast<size_t>(made)].outs, id);
    if (part < parts_.size()) add(parts_[part].ins, id);
  }

  static void add(std::vector<VariableId>& to, VariableId id) {
    if (std::find(to.begin(), to.end(), id) == to.end()) to.push_back(id);
  }

  void connect(size_t index) {
    Part& part = parts_[index];
    part.ins.insert(part.ins.begin(), whole_.ins.begin(), whole_.ins.end());
    std::vector<bool> is_used(made_in_.size());
    for_each_step(tape_, part.begin, part.end, [&](size_t, const Step& step, size_t) {
      for_each_use(step, [&](VariableId id) {
        if (id == no_variable) return;
        is_used[static_cast<size_t>(id)] = true;
        need(id, index);
      });
    });
    for (size_t i : whole_.captured) {
      if (is_used[static_cast<size_t>(tape_.captured[i].id)]) part.captured.push_back(i);
    }
    for (size_t hook : part.hooks) {
      for (const VariableId id : tape_.steps[hook].ins) need_for_hook(id);
    }
  }

  void need_for_hook(VariableId id) {
    const int32_t made = made_in_[static_cast<size_t>(id)];
    if (made >= 0) add(parts_[static_cast<size_t>(made)].outs, id);
  }

  const Tape& tape_;
  const Part whole_;
  std::vector<int32_t> made_in_;  ///< the part that makes a variable; -1: it is from outside
  std::map<size_t, std::vector<size_t>> hooks_;
  std::set<size_t> makers_;  ///< the steps that gave tensors with hooks their history, plus one
  std::vector<Part> parts_;
};

}  // namespace

Part whole(const Tape& tape) {
  Part part{0, tape.steps.size()};
  part.last_ambient = tape.last_ambient;
  for (VariableId id = 0; id < tape.num_inputs; ++id) part.ins.push_back(id);
  for (size_t i = 0; i < tape.captured.size(); ++i) {
    if (tape.captured[i].is_state) {
      part.ins.push_back(tape.captured[i].id);
    } else {
      part.captured.push_back(i);
    }
  }
  part.outs = tape.results;
  for (const StoredTensor& stored : tape.stored) part.outs.push_back(stored.id);
  return part;
}

bool has_hooks(const Tape& tape) {
  return std::any_of(tape.steps.begin(), tape.steps.end(),
                     [](const Step& step) { return step.is_hook() && !step.is_lost; });
}

bool is_divided(const std::vector<Part>& parts) {
  if (parts.size() == 1) return false;
  return parts.size() > 2 || parts.back().is_one_by_one || !parts.back().hooks.empty();
}

std::vector<Part> split(const Tape& tape) {
  return Splitter(tape).run();
}

}  // namespace ahead::observe
