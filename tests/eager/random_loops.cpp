#include "eager/random_loops.h"

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>

#include "fuzz/random.h"

namespace ahead::test {
namespace {

using fuzz::Random;
using Kind = StepKind;

/// What the generator knows of values, so that programs are valid: what autograd may have saved is
/// not written to before it is released.
class Draft {
 public:
  explicit Draft(uint64_t seed) : random_(seed) { loop_.seed = seed; }

  RandomLoop make() {
    choose_loop();
    values_ = {{0, 0, true}, {1, loop_.is_argument_twice ? 0 : 1, true}};
    const int64_t count = random_.between(2, 9);
    const bool learns = loop_.chain == 0 && random_.chance(0.35);
    const bool counts = random_.chance(0.25);
    if (counts) loop_.steps.push_back(make_step(Kind::Count));
    for (int64_t i = 0; i < count; ++i) loop_.steps.push_back(random_step(/*is_inner=*/false));
    if (learns) {
      if (!is_linear_) loop_.steps.push_back(make_step(Kind::Linear));
      loop_.steps.push_back(make_step(Kind::Learn));
      for (int64_t i = random_.between(0, 2); i > 0; --i)
        loop_.steps.push_back(random_step(/*is_inner=*/false));
    }
    loop_.results.push_back(values_.back().id);
    if (random_.chance(0.3)) loop_.results.push_back(any());
    loop_.returns_number = random_.chance(0.04);
    return loop_;
  }

 private:
  struct Value {
    int id, root;
    bool is_writable;
  };

  int every(double probability, int64_t low, int64_t high) {
    return random_.chance(probability) ? static_cast<int>(random_.between(low, high)) : 0;
  }

  void choose_loop() {
    loop_.holder = random_.pick<Holder>({Holder::Reference, Holder::Value, Holder::Module});
    loop_.calls = static_cast<int>(random_.between(10, 20));
    loop_.are_slices = random_.chance(0.4);
    loop_.is_argument_twice = random_.chance(0.1);
    loop_.other_size_every = every(0.15, 2, 6);
    loop_.argument_grad_every = every(0.3, 1, 4);
    loop_.no_grad_every = every(0.1, 2, 5);
    loop_.rate_every = every(0.15, 3, 7);
    loop_.scale_every = loop_.holder == Holder::Module ? every(0.15, 4, 9) : 0;
    loop_.eval_every = every(0.15, 3, 6);
    loop_.freeze_every = every(0.1, 4, 7);
    loop_.replace_every = loop_.holder == Holder::Value ? 0 : every(0.1, 4, 8);
    loop_.member_every = loop_.holder == Holder::Value ? 0 : every(0.1, 4, 8);
    loop_.hold_every = every(0.15, 2, 7);
    loop_.hook_every = every(0.3, 3, 6);
    loop_.has_backward = random_.chance(0.6);
    loop_.step_every = loop_.has_backward ? every(0.6, 1, 3) : 0;
    loop_.has_momentum = random_.chance(0.3);
    loop_.keeps_results = random_.chance(0.3);
    if (loop_.holder == Holder::Value || !loop_.has_backward) return;
    loop_.chain = every(0.15, 2, 3);
    if (loop_.chain == 0) return;
    // Nothing that a graph over several calls needs is written to.
    loop_.step_every = loop_.chain;
    loop_.no_grad_every = loop_.freeze_every = loop_.replace_every = loop_.argument_grad_every = 0;
  }

  int any() {
    // Rather a late one.
    const size_t back = std::min(random_.below(values_.size()), random_.below(values_.size()));
    return values_[values_.size() - 1 - back].id;
  }
  Value& value(int id) {
    for (Value& each : values_) {
      if (each.id == id) return each;
    }
    return values_.front();
  }
  void save(int id) { is_saved_[value(id).root] = true; }
  /// Whether autograd may need the state of the host to stay as it is.
  bool is_kept(Kind kind) const {
    const bool is_written = kind == Kind::WriteBuffer || kind == Kind::WriteWeight;
    return loop_.chain != 0 && (is_written || kind == Kind::Learn || kind == Kind::Hook);
  }
  bool can_write(int id) {
    const Value& target = value(id);
    if (is_saved_[target.root] || !target.is_writable) return false;
    const bool is_argument = target.root < 2;
    return !is_argument || (loop_.argument_grad_every == 0 && loop_.chain == 0);
  }

  Step random_step(bool is_inner) {
    static const std::vector<std::pair<Kind, int>> weights = {
        {Kind::Unary, 10},      {Kind::Binary, 8},      {Kind::Linear, 12},
        {Kind::View, 5},        {Kind::Drop, 4},        {Kind::Noise, 2},
        {Kind::Times, 5},       {Kind::Rate, 3},        {Kind::Scale, 6},
        {Kind::Constant, 4},    {Kind::Changing, 1},    {Kind::Write, 8},
        {Kind::ReadBuffer, 5},  {Kind::Store, 8},       {Kind::WriteBuffer, 5},
        {Kind::WriteWeight, 2}, {Kind::Average, 5},     {Kind::Shift, 3},
        {Kind::Fill, 2},        {Kind::ReadMember, 10}, {Kind::Keep, 1},
        {Kind::IfPositive, 5},  {Kind::IfEqual, 2},     {Kind::Argmax, 2},
        {Kind::Item, 1},        {Kind::Hook, 7},        {Kind::Penalty, 3},
        {Kind::Throw, 3},       {Kind::ThrowAt, 1}};
    int64_t total = 0;
    for (const auto& [kind, weight] : weights) total += weight;
    int64_t chosen = random_.between(1, total);
    Kind kind = Kind::Unary;
    for (const auto& [each, weight] : weights) {
      kind = each;
      chosen -= weight;
      if (chosen <= 0) break;
    }
    const bool has_parts = kind == Kind::IfPositive || kind == Kind::IfEqual;
    if (is_inner && has_parts) kind = Kind::Unary;
    return make_step(kind);
  }

  void add(const Step& step, int root, bool is_writable) {
    values_.push_back({step.id, root, is_writable});
  }
  void add_new(const Step& step) { add(step, step.id, true); }

  std::vector<Step> part() {
    const std::vector<Value> before = values_;
    std::vector<Step> steps;
    for (int64_t i = random_.between(1, 2); i > 0; --i) steps.push_back(random_step(true));
    values_ = before;
    return steps;
  }

  Step make_step(Kind kind);

  Random random_;
  RandomLoop loop_;
  std::vector<Value> values_;
  std::map<int, bool> is_saved_;
  bool is_weight_saved_ = false, is_buffer_saved_ = false, is_linear_ = false;
  int next_id_ = 2;
};

Step Draft::make_step(Kind kind) {
  Step step{kind, next_id_++, any(), any()};
  step.variant = static_cast<int>(random_.below(12));
  step.number = 0.25 * static_cast<double>(random_.between(-6, 6)) + 0.125;
  if (is_kept(kind)) return make_step(Kind::Times);
  switch (kind) {
    case Kind::Unary:
    case Kind::Drop:
      save(step.a);
      add_new(step);
      save(step.id);
      break;
    case Kind::Binary:
    case Kind::Argmax:
      save(step.a);
      save(step.b);
      add_new(step);
      break;
    case Kind::Linear:
      save(step.a);
      is_weight_saved_ = is_linear_ = true;
      add_new(step);
      break;
    case Kind::View:
      add(step, value(step.a).root, value(step.a).is_writable && step.variant % 4 != 3);
      break;
    case Kind::Write:
      if (!can_write(step.a)) return make_step(Kind::Times);
      break;
    case Kind::ReadBuffer:
      if (step.variant % 2 == 1) {
        is_buffer_saved_ = true;
        save(step.a);
      }
      add_new(step);
      break;
    case Kind::WriteBuffer:
      if (is_buffer_saved_) return make_step(Kind::Times);
      break;
    case Kind::WriteWeight:
      if (is_weight_saved_) return make_step(Kind::Times);
      break;
    case Kind::ReadMember:
      if (step.variant % 3 == 1) save(step.a);
      add_new(step);
      break;
    case Kind::IfPositive:
    case Kind::IfEqual:
      step.yes = part();
      step.no = part();
      add(step, step.id, false);
      break;
    case Kind::Penalty:
      save(step.a);
      is_weight_saved_ = true;
      add_new(step);
      break;
    case Kind::Learn:
      is_saved_.clear();
      is_weight_saved_ = is_buffer_saved_ = false;
      break;
    case Kind::Noise:
    case Kind::Times:
    case Kind::Rate:
    case Kind::Scale:
    case Kind::Constant:
    case Kind::Changing:
    case Kind::Item:
      add_new(step);
      break;
    default:
      break;
  }
  return step;
}

std::string name(int id) {
  return id == 0 ? "x" : id == 1 ? "y" : "v" + std::to_string(id);
}

void print(std::ostream& out, const std::vector<Step>& steps, const std::string& indent);

/// The right-hand side, or the whole, of a step.
std::string text(const Step& step) {
  const std::string a = name(step.a), b = name(step.b);
  const int v = step.variant;
  const std::string member = "m" + std::to_string(v % 2), number = c10::str(step.number);
  switch (step.kind) {
    case Kind::Unary: {
      const char* const functions[] = {"tanh", "sin", "sigmoid", "relu", "softmax(1)", "square"};
      return a + "." + functions[v % 6];
    }
    case Kind::Binary:
      return a + (v % 3 == 0 ? " + " : v % 3 == 1 ? " - " : " * ") + b;
    case Kind::Linear:
      return a + ".matmul(weight) + bias";
    case Kind::View: {
      const char* const views[] = {"view_as(itself)", "t().t()", "slice(0, 0)", "[:1].expand"};
      return a + "." + views[v % 4];
    }
    case Kind::Drop:
      return "dropout(" + a + ")";
    case Kind::Noise:
      return a + " + 0.1 * randn_like";
    case Kind::Times:
      return a + " * " + number;
    case Kind::Rate:
      return a + " * rate";
    case Kind::Scale:
      return a + " * scale";
    case Kind::Count:
      return c10::str(v >= 6 ? "if (calls < 8) " : "", "if (++calls % ", 2 + v % 4,
                      " == 0) scale *= 1.25");
    case Kind::Constant:
    case Kind::Changing: {
      const char* const ways[] = {"torch::tensor(vector)", "from_blob(own).clone()", "accessor",
                                  "from_blob(shared)"};
      return a + " + " + ways[v % 4] + " of " + number +
             (step.kind == Kind::Changing ? c10::str(" + call / ", 2 + v % 3) : "");
    }
    case Kind::Write: {
      const char* const writes[] = {".mul_(number)", ".add_(1)", "[:, :2].mul_(number)",
                                    " under no_grad .mul_(number)"};
      return a + writes[v % 4] + " " + number;
    }
    case Kind::ReadBuffer:
      return a + (v % 2 == 1 ? " * buffer" : " + buffer");
    case Kind::WriteBuffer:
      return "buffer.mul_(0.5).add_(" + a + ".detach().mean(0))";
    case Kind::WriteWeight:
      return "{no_grad; weight.mul_(0.9)}";
    case Kind::Store:
      return member + " = " + a +
             (v % 3 == 0   ? ".mean(0)"
              : v % 3 == 1 ? ".mean(0).detach()"
                           : ".detach().mean(0)");
    case Kind::Average:
      return member + " = 0.75 * " + member + " + 0.25 * " + a + ".detach().mean(0)";
    case Kind::Shift:
      return "m1 = m0; m0 = " + a + ".detach().mean(0)";
    case Kind::Fill:
      return "if (!filled.defined()) filled = " + a + ".detach().mean(0).mean()";
    case Kind::ReadMember:
      return a + (v % 3 == 0   ? " + " + member + ".detach()"
                  : v % 3 == 1 ? " * " + member + ".detach()"
                               : " + (filled or 1)");
    case Kind::Keep:
      return "log.push_back(" + a + ".detach())";
    case Kind::IfPositive:
      return "if ((" + a + ".sum() > " + number + ").item<bool>())";
    case Kind::IfEqual:
      return "if (equal(" + a + ", " + b + "))";
    case Kind::Argmax:
      return b + " * " + a + "[:, " + a + ".sum(0).argmax().item<int64_t>()]";
    case Kind::Item:
      return a + " * tanh(" + a + ".sum().item<double>())";
    case Kind::Hook: {
      const char* const on[] = {"", "weight", "x"};
      const char* const removed[] = {"", ", removed at the end", ", removed at once", ""};
      return c10::str("hook on ", v % 3 == 0 ? a : on[v % 3], ": g * ",
                      v / 3 == 3 ? "shared factor" : number, removed[v / 3]);
    }
    case Kind::Learn:
      return c10::str(v % 3 == 0   ? ""
                      : v % 3 == 1 ? "zero_grad(); "
                                   : "zero_grad(false); ",
                      a, ".square().mean().backward()", v % 4 == 3 ? "" : "; sgd.step()");
    case Kind::Penalty:
      return a + " + grad({" + a + ".matmul(weight).tanh().sum()}, {weight}, create_graph)[0]" +
             ".square().sum()";
    case Kind::Throw:
      return "if ((" + a + ".sum() > 6).item<bool>()) throw \"too much\"";
    case Kind::ThrowAt:
      return c10::str("if (call % 7 == ", v % 7, ") throw \"at this call\"");
  }
  return "";
}

bool has_value(Kind kind) {
  switch (kind) {
    case Kind::Count:
    case Kind::Write:
    case Kind::WriteBuffer:
    case Kind::WriteWeight:
    case Kind::Store:
    case Kind::Average:
    case Kind::Shift:
    case Kind::Fill:
    case Kind::Keep:
    case Kind::Hook:
    case Kind::Learn:
    case Kind::Throw:
    case Kind::ThrowAt:
      return false;
    default:
      return true;
  }
}

void print(std::ostream& out, const std::vector<Step>& steps, const std::string& indent) {
  for (const Step& step : steps) {
    out << indent << (has_value(step.kind) ? name(step.id) + " = " : "") << text(step) << "\n";
    if (step.kind != Kind::IfPositive && step.kind != Kind::IfEqual) continue;
    print(out, step.yes, indent + "  ");
    out << indent << "else\n";
    print(out, step.no, indent + "  ");
  }
}

bool any_step(const std::vector<Step>& steps, const std::function<bool(const Step&)>& is_it) {
  return std::any_of(steps.begin(), steps.end(), [&](const Step& step) {
    return is_it(step) || any_step(step.yes, is_it) || any_step(step.no, is_it);
  });
}

void add_smaller(const std::vector<Step>& steps,
                 const std::function<void(std::vector<Step>)>& found) {
  for (size_t i = steps.size(); i-- > 0;) {
    std::vector<Step> less = steps;
    less.erase(less.begin() + static_cast<std::ptrdiff_t>(i));
    found(less);
    less = steps;
    add_smaller(steps[i].yes, [&](std::vector<Step> yes) {
      less[i].yes = std::move(yes);
      found(less);
      less = steps;
    });
    add_smaller(steps[i].no, [&](std::vector<Step> no) {
      less[i].no = std::move(no);
      found(less);
      less = steps;
    });
  }
}

constexpr int RandomLoop::*intervals[] = {&RandomLoop::other_size_every,
                                          &RandomLoop::argument_grad_every,
                                          &RandomLoop::no_grad_every,
                                          &RandomLoop::rate_every,
                                          &RandomLoop::scale_every,
                                          &RandomLoop::eval_every,
                                          &RandomLoop::freeze_every,
                                          &RandomLoop::replace_every,
                                          &RandomLoop::member_every,
                                          &RandomLoop::hold_every,
                                          &RandomLoop::hook_every,
                                          &RandomLoop::step_every,
                                          &RandomLoop::chain};
constexpr const char* interval_names[] = {"another size",
                                          "x requires grad",
                                          "under no_grad",
                                          "rate changes",
                                          "scale changes",
                                          "train()/eval()",
                                          "weight (un)frozen",
                                          "bias replaced",
                                          "m0 replaced",
                                          "somebody holds m0",
                                          "hook factor changes",
                                          "sgd.step(); zero_grad()",
                                          "members read with history, one backward"};

constexpr bool RandomLoop::*switches[] = {
    &RandomLoop::returns_number, &RandomLoop::are_slices,   &RandomLoop::is_argument_twice,
    &RandomLoop::has_backward,   &RandomLoop::has_momentum, &RandomLoop::keeps_results};
constexpr const char* switch_names[] = {"returns a number", "slices as arguments",
                                        "y may be x",       "backward outside",
                                        "momentum",         "results are kept"};

}  // namespace

std::string RandomLoop::str() const {
  std::ostringstream out;
  const char* const holders[] = {"state by reference", "state in the closure", "state in a module"};
  out << "AHEAD_FUZZ_SEED=" << seed << ": " << calls << " calls, "
      << holders[static_cast<size_t>(holder)];
  for (size_t i = 0; i < std::size(switches); ++i) {
    if (this->*switches[i]) out << "; " << switch_names[i];
  }
  for (size_t i = 0; i < std::size(intervals); ++i) {
    const int every = this->*intervals[i];
    if (every != 0) out << "; " << interval_names[i] << " every " << every;
  }
  out << "\n(x, y, rate) {\n";
  print(out, steps, "  ");
  out << "  return";
  for (int id : results) out << " " << name(id);
  out << "\n}\n";
  return out.str();
}

bool RandomLoop::may_be_stale() const {
  // A hook that runs inside the function is a part of it, and what it reads is behind a pointer.
  const bool differentiates = any_step(steps, [](const Step& step) {
    return step.kind == Kind::Learn || step.kind == Kind::Penalty;
  });
  return any_step(steps, [&](const Step& step) {
    if (step.kind == Kind::Changing || step.kind == Kind::ThrowAt) return true;
    if (step.kind == Kind::Hook && step.variant / 3 == 3 && hook_every != 0 && differentiates)
      return true;
    return step.kind == Kind::Count && holder == Holder::Reference;
  });
}

bool RandomLoop::replaces_held_tensors() const {
  if (holder != Holder::Reference) return false;
  // The optimizer holds the bias.
  if (replace_every != 0) return true;
  if (member_every == 0) return false;
  // Programs for other kinds of call, with or without gradients, or for other outcomes hold what
  // they use.
  constexpr int RandomLoop::*of_kinds[] = {
      &RandomLoop::other_size_every, &RandomLoop::argument_grad_every, &RandomLoop::no_grad_every,
      &RandomLoop::rate_every,       &RandomLoop::eval_every,          &RandomLoop::freeze_every};
  const bool has_kinds = std::any_of(std::begin(of_kinds), std::end(of_kinds),
                                     [&](int RandomLoop::*every) { return this->*every != 0; });
  return has_kinds || is_argument_twice || has_backward || hold_every != 0 || keeps_results ||
         chain != 0 || any_step(steps, [](const Step& step) {
           switch (step.kind) {
             case Kind::IfPositive:
             case Kind::IfEqual:
             case Kind::Argmax:
             case Kind::Throw:
             case Kind::Learn:
             case Kind::Fill:
             case Kind::Shift:
               return true;
             default:
               return false;
           }
         });
}

std::vector<RandomLoop> RandomLoop::smaller() const {
  std::vector<RandomLoop> found;
  RandomLoop less = *this;
  add_smaller(steps, [&](std::vector<Step> fewer) {
    less.steps = std::move(fewer);
    found.push_back(less);
  });
  for (int RandomLoop::*interval : intervals) {
    less = *this;
    less.*interval = 0;
    if (this->*interval != 0) found.push_back(less);
  }
  for (bool RandomLoop::*is_on : switches) {
    less = *this;
    less.*is_on = false;
    if (this->*is_on) found.push_back(less);
  }
  less = *this;
  less.results.pop_back();
  if (!results.empty()) found.push_back(less);
  less = *this;
  less.calls = calls - 1;
  if (calls > 2) found.push_back(less);
  return found;
}

RandomLoop make_loop(uint64_t seed) {
  return Draft(seed).make();
}

}  // namespace ahead::test
