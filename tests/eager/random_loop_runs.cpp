#include <torch/torch.h>

#include <array>
#include <functional>
#include <map>
#include <utility>

#include "eager/random_loops.h"

/// How random loops are run, eagerly and compiled.
namespace ahead::test {
namespace {

using Kind = StepKind;
using Results = std::pair<std::vector<at::Tensor>, double>;

constexpr int64_t columns = 4;

/// What the loop has outside, behind a pointer.
struct Shared {
  std::vector<at::Tensor> log;
  std::vector<float> blob = std::vector<float>(columns, 0.5f);
  int64_t call = 0;
  int64_t replaced = 0;  ///< how many tensors the loop has replaced
  double hook_factor = 0.5;
};

struct State {
  at::Tensor weight, bias, buffer, filled;
  std::array<at::Tensor, 2> members;
  int64_t calls = 0;
  double scale = 1.5;
  torch::nn::Dropout dropout{nullptr};
  std::shared_ptr<torch::optim::SGD> sgd;
  std::shared_ptr<Shared> shared;
};

State make_state(const RandomLoop& loop) {
  State state;
  state.weight = leaf({columns, columns});
  state.bias = leaf({columns});
  state.buffer = at::rand({columns});
  for (at::Tensor& member : state.members) member = at::rand({columns});
  state.dropout = torch::nn::Dropout(0.25);
  state.sgd = std::make_shared<torch::optim::SGD>(
      std::vector<at::Tensor>{state.weight, state.bias},
      torch::optim::SGDOptions(0.05).momentum(loop.has_momentum ? 0.5 : 0));
  state.shared = std::make_shared<Shared>();
  return state;
}

/// One call of the function.
class Body {
 public:
  Body(const RandomLoop& loop, State& state, const at::Tensor& x, const at::Tensor& y, double rate)
      : loop_(loop), state_(state), rate_(rate), values_{{0, x}, {1, y}} {}

  Results run() {
    run(loop_.steps);
    for (const auto& undo : at_end_) undo();
    Results results;
    for (int id : loop_.results) results.first.push_back(value(id));
    if (loop_.returns_number) results.second = value(0).sum().item<double>();
    return results;
  }

 private:
  /// One that is not there, because its step was taken out, is the first argument.
  const at::Tensor& value(int id) const {
    const auto found = values_.find(id);
    return found == values_.end() ? values_.at(0) : found->second;
  }

  at::Tensor read(const at::Tensor& member) const {
    return loop_.chain != 0 ? member : member.detach();
  }

  at::Tensor run(const std::vector<Step>& steps) {
    at::Tensor last;
    for (const Step& step : steps) {
      const at::Tensor made = run(step);
      if (!made.defined()) continue;
      last = values_[step.id] = made;
    }
    return last;
  }

  at::Tensor run(const Step& step);
  at::Tensor unary(const Step& step) const;
  at::Tensor view(const Step& step) const;
  at::Tensor constant(const Step& step, double number) const;
  at::Tensor branch(const Step& step, bool is_taken);
  void write(const Step& step) const;
  void hook(const Step& step);
  void learn(const Step& step);
  at::Tensor penalty(const Step& step) const;

  const RandomLoop& loop_;
  State& state_;
  double rate_;
  std::map<int, at::Tensor> values_;
  std::vector<std::function<void()>> at_end_;
};

at::Tensor Body::unary(const Step& step) const {
  const at::Tensor& a = value(step.a);
  switch (step.variant % 6) {
    case 0:
      return a.tanh();
    case 1:
      return a.sin();
    case 2:
      return a.sigmoid();
    case 3:
      return a.relu();
    case 4:
      return a.softmax(1);
    default:
      return a.square();
  }
}

at::Tensor Body::view(const Step& step) const {
  const at::Tensor& a = value(step.a);
  switch (step.variant % 4) {
    case 0:
      return a.view_as(a);
    case 1:
      return a.t().t();
    case 2:
      return a.slice(0, 0);
    default:
      return a.slice(0, 0, 1).expand_as(a);
  }
}

at::Tensor Body::constant(const Step& step, double number) const {
  std::vector<float> numbers;
  for (int64_t i = 0; i < columns; ++i) numbers.push_back(static_cast<float>(number + i));
  switch (step.variant % 4) {
    case 0:
      return torch::tensor(numbers);
    case 1:
      return torch::from_blob(numbers.data(), {columns}).clone();
    case 2: {
      at::Tensor made = at::empty({columns});
      auto elements = made.accessor<float, 1>();
      for (int64_t i = 0; i < columns; ++i) elements[i] = numbers[static_cast<size_t>(i)];
      return made;
    }
    default:
      state_.shared->blob = numbers;
      return torch::from_blob(state_.shared->blob.data(), {columns});
  }
}

at::Tensor Body::branch(const Step& step, bool is_taken) {
  const std::map<int, at::Tensor> before = values_;
  const at::Tensor made = run(is_taken ? step.yes : step.no);
  values_ = before;
  return made.defined() ? made : value(step.a) + (is_taken ? 1 : 2);
}

void Body::write(const Step& step) const {
  const auto found = values_.find(step.a);
  if (found == values_.end()) return;
  const at::Tensor& a = found->second;
  switch (step.variant % 4) {
    case 0:
      a.mul_(step.number);
      break;
    case 1:
      a.add_(1);
      break;
    case 2:
      a.slice(1, 0, 2).mul_(step.number);
      break;
    default: {
      at::NoGradGuard no_grad;
      a.mul_(step.number);
    }
  }
}

void Body::hook(const Step& step) {
  const int on = step.variant % 3, how = step.variant / 3;
  const at::Tensor target = on == 0 ? value(step.a) : on == 1 ? state_.weight : value(0);
  if (!target.requires_grad()) return;
  if (how == 3) {
    target.register_hook([shared = state_.shared](const at::Tensor& gradient) {
      return gradient * shared->hook_factor;
    });
    return;
  }
  const unsigned registered = target.register_hook(
      [number = step.number](const at::Tensor& gradient) { return gradient * number; });
  if (how == 1) at_end_.emplace_back([=] { target.remove_hook(registered); });
  if (how == 2) target.remove_hook(registered);
}

void Body::learn(const Step& step) {
  const at::Tensor loss = value(step.a).square().mean();
  if (step.variant % 3 != 0) state_.sgd->zero_grad(/*set_to_none=*/step.variant % 3 == 1);
  if (loss.requires_grad()) loss.backward();
  if (step.variant % 4 != 3) state_.sgd->step();
  for (auto& [id, value] : values_) {
    if (id > 1) value = value.detach();
  }
}

at::Tensor Body::penalty(const Step& step) const {
  const at::Tensor& a = value(step.a);
  const at::Tensor sum = a.matmul(state_.weight).tanh().sum();
  if (!sum.requires_grad() || !state_.weight.requires_grad()) return a + sum;
  const auto gradients = torch::autograd::grad({sum}, {state_.weight}, /*grad_outputs=*/{},
                                               /*retain_graph=*/true, /*create_graph=*/true);
  return a + gradients[0].square().sum();
}

at::Tensor Body::run(const Step& step) {
  const at::Tensor a = value(step.a), b = value(step.b);
  const int v = step.variant;
  at::Tensor& member = state_.members[static_cast<size_t>(v % 2)];
  switch (step.kind) {
    case Kind::Unary:
      return unary(step);
    case Kind::Binary:
      return v % 3 == 0 ? a + b : v % 3 == 1 ? a - b : a * b;
    case Kind::Linear:
      return a.matmul(state_.weight) + state_.bias;
    case Kind::View:
      return view(step);
    case Kind::Drop:
      return state_.dropout->forward(a);
    case Kind::Noise:
      return a + 0.1 * at::randn_like(a);
    case Kind::Times:
      return a * step.number;
    case Kind::Rate:
      return a * rate_;
    case Kind::Scale:
      return a * state_.scale;
    case Kind::Count:
      if (v >= 6 && state_.calls >= 8) return {};
      if (++state_.calls % (2 + v % 4) == 0) state_.scale *= 1.25;
      return {};
    case Kind::Constant:
      return a + constant(step, step.number);
    case Kind::Changing: {
      const int64_t changes = state_.shared->call / (2 + v % 3);
      return a + constant(step, step.number + static_cast<double>(changes));
    }
    case Kind::Write:
      write(step);
      return {};
    case Kind::ReadBuffer:
      return v % 2 == 1 ? a * state_.buffer : a + state_.buffer;
    case Kind::WriteBuffer:
      state_.buffer.mul_(0.5).add_(a.detach().mean(0));
      return {};
    case Kind::WriteWeight: {
      at::NoGradGuard no_grad;
      state_.weight.mul_(0.9);
      return {};
    }
    case Kind::Store:
      member = v % 3 == 0 ? a.mean(0) : v % 3 == 1 ? a.mean(0).detach() : a.detach().mean(0);
      return {};
    case Kind::Average:
      member = 0.75 * read(member) + 0.25 * a.detach().mean(0);
      return {};
    case Kind::Shift:
      state_.members[1] = state_.members[0];
      state_.members[0] = a.detach().mean(0);
      return {};
    case Kind::Fill:
      if (!state_.filled.defined()) state_.filled = a.detach().mean(0).mean();
      return {};
    case Kind::ReadMember:
      if (v % 3 == 2) return state_.filled.defined() ? a + state_.filled : a + 1;
      return v % 3 == 0 ? a + read(member) : a * read(member);
    case Kind::Keep:
      state_.shared->log.push_back(a.detach());
      return {};
    case Kind::IfPositive:
      return branch(step, (a.sum() > step.number).item<bool>());
    case Kind::IfEqual:
      return branch(step, at::equal(a, b));
    case Kind::Argmax: {
      const int64_t column = a.detach().sum(0).argmax().item<int64_t>();
      return b * a.select(1, column).unsqueeze(1);
    }
    case Kind::Item:
      return a * std::tanh(a.detach().sum().item<double>());
    case Kind::Hook:
      hook(step);
      return {};
    case Kind::Learn:
      learn(step);
      return {};
    case Kind::Penalty:
      return penalty(step);
    case Kind::Throw:
      if ((a.sum() > 6).item<bool>()) throw std::runtime_error("too much");
      return {};
    case Kind::ThrowAt:
      if (state_.shared->call % 7 == v % 7) throw std::logic_error("at this call");
      return {};
  }
  return {};
}

/// The three ways to have the state.
struct ByReference {
  Results operator()(const at::Tensor& x, const at::Tensor& y, double rate) {
    return Body(*loop, *state, x, y, rate).run();
  }
  const RandomLoop* loop;
  State* state;
};

struct ByValue {
  Results operator()(const at::Tensor& x, const at::Tensor& y, double rate) {
    return Body(*loop, state, x, y, rate).run();
  }
  const RandomLoop* loop;
  State state;
};

struct StateModule : torch::nn::Module {
  StateModule(const RandomLoop* program, State made) : loop(program), state(std::move(made)) {
    register_module("dropout", state.dropout);
  }
  Results forward(const at::Tensor& x, const at::Tensor& y, double rate) {
    return Body(*loop, state, x, y, rate).run();
  }
  const RandomLoop* loop;
  State state;
};

bool is_now(int every, int call) {
  return every != 0 && call % every == every - 1;
}

/// The loop around the function.
class Loop {
 public:
  Loop(const RandomLoop& loop, State& state, Log& log) : loop_(loop), state_(state), log_(log) {}

  template <class Function>
  void run(Function& function) {
    const at::Tensor data = at::randn({2 * int64_t(loop_.calls) * 3, columns});
    for (int call = 0; call < loop_.calls; ++call) {
      state_.shared->call = call;
      change(call);
      const int64_t rows = is_now(loop_.other_size_every, call) ? 2 : 3;
      at::Tensor x = loop_.are_slices ? data.narrow(0, 3 * call, rows) : at::randn({rows, columns});
      const at::Tensor y = loop_.is_argument_twice && call % 3 != 1 ? x
                           : loop_.are_slices ? data.narrow(0, 3 * (loop_.calls + call), rows)
                                              : at::randn({rows, columns});
      if (is_now(loop_.argument_grad_every, call)) x = x.detach().requires_grad_();
      try {
        step(function, call, x, y);
      } catch (const c10::Error& error) {
        log_("error", std::string(error.what_without_backtrace()));
      } catch (const std::exception& error) {
        log_("error", std::string(error.what()));
      }
      show(x, y);
    }
    for (const at::Tensor& held : held_) see("held", held);
  }

 private:
  void change(int call) {
    if (is_now(loop_.eval_every, call)) state_.dropout->train(!state_.dropout->is_training());
    if (is_now(loop_.freeze_every, call))
      state_.weight.set_requires_grad(!state_.weight.requires_grad());
    if (is_now(loop_.replace_every, call)) replace(state_.bias, leaf({columns}));
    if (is_now(loop_.member_every, call)) replace(state_.members[0], at::rand({columns}));
    if (is_now(loop_.hold_every, call)) held_.push_back(state_.members[0]);
    if (is_now(loop_.hook_every, call)) state_.shared->hook_factor *= -1.25;
    if (is_now(loop_.scale_every, call)) state_.scale *= 0.75;
    if (is_now(loop_.rate_every, call)) rate_ *= 0.75;
  }

  void replace(at::Tensor& tensor, const at::Tensor& other) {
    tensor = other;
    ++state_.shared->replaced;
  }

  template <class Function>
  void step(Function& function, int call, const at::Tensor& x, const at::Tensor& y) {
    Results results;
    {
      at::AutoGradMode grad_mode(!is_now(loop_.no_grad_every, call));
      results = function(x, y, rate_);
    }
    for (const at::Tensor& result : results.first) see("result", result);
    log_("number", results.second);
    if (loop_.has_backward) {
      for (const at::Tensor& result : results.first) {
        if (result.requires_grad()) loss_ = loss_ + result.tanh().mean();
      }
      if (loop_.chain == 0 || is_now(loop_.chain, call)) learn();
    }
    if (loop_.keeps_results) kept_ = results;
    if (!is_now(loop_.step_every, call)) return;
    state_.sgd->step();
    state_.sgd->zero_grad();
  }

  void learn() {
    const at::Tensor loss = std::exchange(loss_, at::zeros({}));
    if (loss.requires_grad()) loss.backward();
    if (loop_.chain == 0) return;
    for (at::Tensor& member : state_.members) member = member.detach();
  }

  void see(const std::string& name, const at::Tensor& tensor) {
    if (loop_.chain != 0) return log_.close(name, tensor);
    log_(name, tensor);
  }

  void show(const at::Tensor& x, const at::Tensor& y) {
    see("x", x);
    see("y", y);
    see("weight", state_.weight);
    see("bias", state_.bias);
    see("buffer", state_.buffer);
    see("m0", state_.members[0]);
    see("m1", state_.members[1]);
    see("filled", state_.filled);
    log_("calls", static_cast<double>(state_.calls));
    log_("scale", state_.scale);
    for (const at::Tensor& logged : state_.shared->log) see("log", logged);
    log_("random numbers", at::detail::getDefaultCPUGenerator().get_state());
  }

  const RandomLoop& loop_;
  State& state_;
  Log& log_;
  std::vector<at::Tensor> held_;
  Results kept_;
  at::Tensor loss_ = at::zeros({});
  double rate_ = 1.5;
};

/// Announced: Options::depends_on tells that tensors were replaced.
template <class Wrap>
void run_loop(const RandomLoop& loop, Wrap& wrap, bool is_announced, LoopRun& run) {
  torch::manual_seed(loop.seed);
  try {
    State state = make_state(loop);
    if (loop.holder == Holder::Module) {
      auto net = std::make_shared<StateModule>(&loop, std::move(state));
      auto function = wrap(net);
      Loop(loop, net->state, run.log).run(function);
    } else {
      Options options{.watch = {state.dropout.ptr()}};
      if (is_announced) options.depends_on = [shared = state.shared] { return shared->replaced; };
      if (loop.holder == Holder::Value) {
        auto function = wrap(ByValue{&loop, state}, options);
        Loop(loop, state, run.log).run(function);
      } else {
        auto function = wrap(ByReference{&loop, &state}, options);
        Loop(loop, state, run.log).run(function);
      }
    }
  } catch (const std::exception& error) {
    run.error = error.what();
  }
}

}  // namespace

LoopRun run_loop_eagerly(const RandomLoop& loop) {
  LoopRun run;
  Eager eager;
  run_loop(loop, eager, /*is_announced=*/false, run);
  return run;
}

LoopRun run_loop_compiled(const RandomLoop& loop, Confirm confirm) {
  LoopRun run;
  Compiling compiling{run.outcome, confirm};
  run_loop(loop, compiling, loop.replaces_held_tensors() && confirm != Confirm::EveryCall, run);
  return run;
}

std::string loop_difference(const RandomLoop& loop, Outcome& outcome) {
  const LoopRun expected = run_loop_eagerly(loop);
  if (!expected.error.empty()) return "eager ends: " + expected.error;
  for (const Confirm confirm : {Confirm(Confirm::Doubling), Confirm(Confirm::EveryCall)}) {
    const bool is_observed = confirm == Confirm::EveryCall;
    const std::string where = is_observed ? "with Confirm::EveryCall: " : "";
    const LoopRun run = run_loop_compiled(loop, confirm);
    if (!is_observed) outcome.add(run.outcome);
    if (!run.error.empty()) return where + "ends: " + run.error;
    const Outcome& counts = run.outcome;
    if (counts.calls != counts.observed_calls + counts.cache_hits + counts.eager_calls)
      return where + "the calls do not add up";
    if (is_observed && counts.cache_hits != 0) return where + "there are hits";
    if (!is_observed && loop.may_be_stale()) continue;
    const std::string difference = expected.log.difference(run.log);
    if (!difference.empty()) return where + difference + "\n" + counts.str();
  }
  return "";
}

}  // namespace ahead::test
