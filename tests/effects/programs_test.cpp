#include <gtest/gtest.h>

#include "ahead/ahead.h"
#include "support/eager.h"
#include "support/journal.h"

/// Programs with effects, run as they are and compiled: what they return, and what they did in
/// which order, must be the same.
namespace ahead {
namespace programs_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Ran {
  Tensors shown;
  std::vector<std::string> journal;
  CompileStats stats;
};

/// Runs a program, a generic lambda of `wrap` that returns what can be seen.
template <class Program>
Ran run_plain(const Program& program) {
  journal::take();
  torch::manual_seed(0);
  Ran ran;
  auto wrap = [](auto f) { return f; };
  ran.shown = program(wrap);
  ran.journal = journal::take();
  return ran;
}

template <class F>
struct Counted {
  Compiled<F> compiled;
  CompileStats& stats;
  template <class... Args>
  auto operator()(Args&&... args) {
    struct Note {
      Counted& self;
      ~Note() { self.stats = self.compiled.stats(); }
    } note{*this};
    return compiled(std::forward<Args>(args)...);
  }
};

template <class Program>
Ran run_compiled(const Program& program, const Options& options) {
  journal::take();
  torch::manual_seed(0);
  Ran ran;
  auto wrap = [&](auto f) { return Counted<decltype(f)>{compile(f, options), ran.stats}; };
  ran.shown = program(wrap);
  ran.journal = journal::take();
  return ran;
}

enum class Runs : uint8_t { FromGraphs, Eagerly };

template <class Program>
void expect_like_eager(const Program& program, Runs runs = Runs::FromGraphs) {
  for (const bool at_once : {false, true}) {
    SCOPED_TRACE(at_once ? "compiled by the first call" : "compiled by the second call");
    Options options;
    if (at_once) options.confirm = Confirm::Never;
    const Ran eager = run_plain(program);
    const Ran compiled = run_compiled(program, options);
    EXPECT_EQ(eager.journal, compiled.journal);
    EXPECT_FALSE(eager.journal.empty());
    expect_same(eager.shown, compiled.shown);
    if (runs == Runs::Eagerly) {
      EXPECT_EQ(compiled.stats.cache_hits, 0u);
      continue;
    }
    EXPECT_EQ(compiled.stats.eager_calls, 0u);
    EXPECT_GE(compiled.stats.cache_hits, 3u);
  }
}

Tensor numbers(int64_t call) {
  return torch::arange(4, at::kFloat) + static_cast<double>(call);
}

TEST(EffectPrograms, NotesBetweenComputations) {
  expect_like_eager([](auto& wrap) {
    auto f = wrap([](const Tensor& x) {
      journal::note("before", x);
      Tensor y = x * 2;
      journal::note("after", y);
      return y.sin();
    });
    Tensors shown;
    for (int64_t call = 0; call < 6; ++call) shown.push_back(f(numbers(call)));
    return shown;
  });
}

TEST(EffectPrograms, NotesOfWhatIsWrittenToLater) {
  expect_like_eager([](auto& wrap) {
    auto f = wrap([](Tensor x) {
      journal::note("old", x);
      x.mul_(3);
      journal::note("new", x);
      x.select(0, 1).mul_(2);
      journal::note("newer", x);
      return x + 1;
    });
    Tensors shown;
    for (int64_t call = 0; call < 6; ++call) {
      Tensor x = numbers(call);
      shown.push_back(f(x));
      shown.push_back(x);
    }
    return shown;
  });
}

TEST(EffectPrograms, MarksWithoutTensors) {
  expect_like_eager([](auto& wrap) {
    auto f = wrap([](const Tensor& x) {
      journal::mark("one");
      Tensor y = x.exp();
      journal::mark("two");
      return y;
    });
    Tensors shown;
    for (int64_t call = 0; call < 6; ++call) shown.push_back(f(numbers(call)));
    return shown;
  });
}

TEST(EffectPrograms, CompositeOperatorsThatReturnNothing) {
  expect_like_eager([](auto& wrap) {
    auto f = wrap([](const Tensor& x) {
      Tensor y = x * 2;
      journal::jot("jotted", y);
      return y.cos();
    });
    Tensors shown;
    for (int64_t call = 0; call < 6; ++call) shown.push_back(f(numbers(call)));
    return shown;
  });
}

TEST(EffectPrograms, OperatorsWithResultsThatNobodyUses) {
  expect_like_eager([](auto& wrap) {
    auto f = wrap([](const Tensor& x) {
      journal::copy("unused", x);
      const Tensor y = journal::copy("first", x), z = journal::copy("first", x);
      return y * z;
    });
    Tensors shown;
    for (int64_t call = 0; call < 6; ++call) shown.push_back(f(numbers(call)));
    return shown;
  });
}

TEST(EffectPrograms, TrainingWithNotesInForwardAndBackward) {
  expect_like_eager([](auto& wrap) {
    Tensor w = torch::randn({4}).requires_grad_();
    auto f = wrap([&](const Tensor& x) {
      Tensor h = x * w;
      journal::note("hidden", h);
      h = journal::NoteGradient::apply(h, "gradient").tanh();
      h = journal::NoteGradient::apply(h * h, "later gradient");
      return h.sum();
    });
    Tensors shown;
    for (int64_t call = 0; call < 6; ++call) {
      w.mutable_grad() = Tensor();
      Tensor loss = f(numbers(call) * 0.1);
      journal::mark("backward begins");
      loss.backward();
      shown.push_back(loss.detach());
      shown.push_back(w.grad().clone());
      torch::NoGradGuard no_grad;
      w.sub_(w.grad(), 0.1);
    }
    return shown;
  });
}

TEST(EffectPrograms, ABackwardInsideTheFunction) {
  expect_like_eager([](auto& wrap) {
    Tensor w = torch::randn({4}).requires_grad_();
    auto f = wrap([&](const Tensor& x) {
      Tensor loss = journal::NoteGradient::apply(x * w, "inner").square().sum();
      journal::note("loss", loss);
      Tensor grad = torch::autograd::grad({loss}, {w})[0];
      journal::note("grad", grad);
      return grad * 2;
    });
    Tensors shown;
    for (int64_t call = 0; call < 6; ++call) shown.push_back(f(numbers(call)));
    return shown;
  });
}

TEST(EffectPrograms, AModuleThatCountsInAnObject) {
  expect_like_eager([](auto& wrap) {
    auto counter = c10::make_intrusive<journal::Counter>();
    torch::nn::Linear layer(4, 4);
    auto f = wrap([counter, layer](const Tensor& x) mutable {
      Tensor y = layer->forward(x);
      journal::count(counter, y);
      return y.relu().sum();
    });
    Tensors shown;
    for (int64_t call = 0; call < 6; ++call) {
      Tensor loss = f(numbers(call));
      loss.backward();
      shown.push_back(loss.detach());
      shown.push_back(layer->weight.grad().clone());
    }
    shown.push_back(at::scalar_tensor(counter->calls));
    return shown;
  });
}

TEST(EffectPrograms, AQueueOfTensors) {
  expect_like_eager([](auto& wrap) {
    auto queue = c10::make_intrusive<journal::Queue>();
    queue->items = {torch::ones({4}), torch::ones({4}) * 2};
    auto f = wrap([&queue](const Tensor& x) {
      Tensor oldest = journal::pop(queue);
      journal::push(queue, x * oldest);
      return oldest + x;
    });
    Tensors shown;
    for (int64_t call = 0; call < 8; ++call) shown.push_back(f(numbers(call)));
    return shown;
  });
}

TEST(EffectPrograms, AnObjectThatIsAnArgument) {
  expect_like_eager([](auto& wrap) {
    auto a = c10::make_intrusive<journal::Counter>(), b = c10::make_intrusive<journal::Counter>();
    auto f = wrap([](const Tensor& x, const c10::IValue& counter) {
      journal::count(counter.toCustomClass<journal::Counter>(), x);
      return x * 2;
    });
    Tensors shown;
    for (int64_t call = 0; call < 12; ++call)
      shown.push_back(f(numbers(call), c10::IValue(call % 2 == 0 ? a : b)));
    shown.push_back(at::scalar_tensor(a->calls));
    shown.push_back(at::scalar_tensor(b->calls));
    return shown;
  });
}

TEST(EffectPrograms, AnObjectThatIsReplaced) {
  expect_like_eager([](auto& wrap) {
    auto counter = c10::make_intrusive<journal::Counter>();
    auto f = wrap([&counter](const Tensor& x) {
      journal::count(counter, x);
      return x * 2;
    });
    Tensors shown;
    for (int64_t call = 0; call < 16; ++call) {
      if (call == 9) counter = c10::make_intrusive<journal::Counter>();
      shown.push_back(f(numbers(call)));
    }
    shown.push_back(at::scalar_tensor(counter->calls));
    return shown;
  });
}

TEST(EffectPrograms, AValueIsReadAfterAnEffect) {
  expect_like_eager([](auto& wrap) {
    auto f = wrap([](const Tensor& x) {
      journal::note("given", x);
      const Tensor y = x * 2;
      if ((y.sum() > 20).item<bool>()) {
        journal::mark("large");
        return y.sin();
      }
      journal::mark("small");
      return y.cos();
    });
    Tensors shown;
    for (int64_t call = 0; call < 20; ++call) shown.push_back(f(numbers(call % 3)));
    return shown;
  });
}

TEST(EffectPrograms, ACheckpointedRegion) {
  expect_like_eager([](auto& wrap) {
    Tensor w = torch::randn({4}).requires_grad_();
    auto f = wrap([&](const Tensor& x) {
      Tensor h = checkpoint(
          CheckpointPolicy::recompute_everything(),
          [&](const Tensor& in) {
            Tensor y = (in * w).tanh();
            journal::note("inside", y);
            return (y * y).exp();
          },
          x);
      return h.sum();
    });
    Tensors shown;
    for (int64_t call = 0; call < 6; ++call) {
      w.mutable_grad() = Tensor();
      f(numbers(call) * 0.1).backward();
      journal::mark("done");
      shown.push_back(w.grad().clone());
    }
    return shown;
  });
}

TEST(EffectPrograms, OneOfTwoResultsIsDifferentiated) {
  expect_like_eager([](auto& wrap) {
    auto f = wrap([](const Tensor& x, const Tensor& y) {
      return Tensors{journal::NoteGradient::apply(x * 2, "of x").sin(),
                     journal::NoteGradient::apply(y * 3, "of y").cos()};
    });
    Tensors shown;
    for (int64_t call = 0; call < 8; ++call) {
      const Tensor x = numbers(call).requires_grad_(), y = numbers(call + 1).requires_grad_();
      const Tensors results = f(x, y);
      if (call % 2 == 0) {
        results[static_cast<size_t>(call / 2 % 2)].sum().backward();
      } else {
        const Tensor wanted = call % 4 == 1 ? x : y;
        shown.push_back(torch::autograd::grad({results[0].sum() + results[1].sum()}, {wanted})[0]);
      }
      for (const Tensor& leaf : {x, y}) {
        if (leaf.grad().defined()) shown.push_back(leaf.grad().clone());
      }
    }
    return shown;
  });
}

TEST(EffectPrograms, BehindSeveralComputedArgumentsThatOtherResultsDoNotReach) {
  auto f = compile(
      [](const Tensor& x, const Tensor& y) {
        return Tensors{journal::NoteGradient::apply(x * y, "noted").sin(), x.cos(), y.exp()};
      },
      {.fullgraph = true, .confirm = Confirm::Never});
  for (const bool create_graph : {false, true}) {
    for (int64_t call = 0; call < 3; ++call) {
      const Tensor x = numbers(call).requires_grad_(), y = numbers(call + 1).requires_grad_();
      const Tensors results = f(x * 2, y * 3);
      const auto asked_for = [&](const Tensors& leaves) {
        return error_of([&] {
          torch::autograd::grad({results[0].sum()}, leaves, {}, /*retain_graph=*/true,
                                create_graph);
        });
      };
      const bool is_hit = f.stats().cache_hits != 0;
      journal::take();
      EXPECT_EQ(asked_for({x}), "");
      EXPECT_EQ(journal::take().size(), 1u);
      const std::string error = asked_for({x, y});
      EXPECT_EQ(error.find("it would happen once for each") != std::string::npos, is_hit) << error;
      EXPECT_EQ(journal::take().size(), 1u);
      results[0].sum().backward({}, /*retain_graph=*/true, create_graph);
      EXPECT_EQ(journal::take().size(), 1u);
    }
  }
  EXPECT_EQ(f.stats().eager_calls, 0u);
}

/// Notes that its backward runs, and has no gradient for its second argument.
struct NoteOnly : torch::autograd::Function<NoteOnly> {
  static Tensor forward(AutogradContext*, const Tensor& x, const Tensor&) { return x * 2; }
  static variable_list backward(AutogradContext*, variable_list grads) {
    journal::note("only", grads[0].sum());
    return {grads[0] * 2, {}};
  }
};

TEST(EffectPrograms, AskedForWhatGetsNoGradient) {
  expect_like_eager([](auto& wrap) {
    auto f = wrap([](const Tensor& x, const Tensor& y, const Tensor& z) {
      return NoteOnly::apply(x, y) * z;
    });
    Tensors shown;
    for (int64_t call = 0; call < 9; ++call) {
      const Tensor x = numbers(call).requires_grad_(call % 2 == 0);
      const Tensor y = numbers(call).requires_grad_(), z = numbers(call + 1).requires_grad_();
      const Tensor wanted = call % 3 == 0 ? y : z;
      const Tensor result = f(x, y, z).sum();
      if (call % 3 == 2) {
        result.backward();
        shown.push_back(z.grad());
        EXPECT_FALSE(y.grad().defined());
      } else {
        const Tensor got = torch::autograd::grad({result}, {wanted}, {}, {}, false, true)[0];
        EXPECT_EQ(got.defined(), call % 3 == 1);
        if (got.defined()) shown.push_back(got);
      }
      journal::mark("done");
    }
    return shown;
  });
}

TEST(EffectPrograms, BehindALeafMadeInside) {
  const auto f = [](const Tensors& in) {
    const Tensor leaf = in[1].detach().requires_grad_();
    return Tensors{in[0] * 2, journal::NoteGradient::apply(leaf * 1, "inner")};
  };
  auto compiled = compile(f);
  for (int64_t call = 0; call < 3; ++call) {
    const Tensor x = numbers(call).requires_grad_(), y = numbers(call);
    journal::take();
    f({x, y})[1].sum().backward();
    const auto expected = journal::take();
    compiled(Tensors{x, y})[1].sum().backward();
    EXPECT_EQ(journal::take(), expected);
  }
  EXPECT_EQ(compiled.stats().cache_hits, 0u);
  EXPECT_GT(compiled.stats().eager_calls, 0u);
}

TEST(EffectPrograms, SecondDerivatives) {
  expect_like_eager([](auto& wrap) {
    auto f = wrap([](const Tensor& x) {
      journal::note("x", x);
      return journal::NoteGradient::apply(x * x, "first").sin();
    });
    Tensors shown;
    for (int64_t call = 0; call < 6; ++call) {
      const Tensor x = numbers(call).requires_grad_();
      const Tensor g = torch::autograd::grad({f(x).sum()}, {x}, {}, true, true)[0];
      shown.push_back(g.detach());
      shown.push_back(torch::autograd::grad({g.sum()}, {x})[0]);
    }
    return shown;
  });
}

TEST(EffectPrograms, SecondDerivativesOfViewsOfOneTensor) {
  expect_like_eager([](auto& wrap) {
    auto f = wrap([](const Tensor& x, const Tensor& y) {
      return journal::NoteGradient::apply(x * x, "noted").sin() * x * y;
    });
    Tensors shown;
    for (int64_t call = 0; call < 6; ++call) {
      const Tensor x = numbers(call).requires_grad_();
      const Tensor g = torch::autograd::grad({f(x, x.view({4})).sum()}, {x}, {}, true, true)[0];
      shown.push_back(g.detach());
      shown.push_back(torch::autograd::grad({g.square().sum()}, {x})[0]);
    }
    return shown;
  });
}

struct Doubled : torch::autograd::Function<Doubled> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x) {
    const Tensor y = x * 2;
    ctx->save_for_backward({y});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {grads[0] * ctx->get_saved_variables()[0]};
  }
};

TEST(EffectPrograms, ACheckpointAfterACustomFunctionRunsOnceWhenItIsObserved) {
  expect_like_eager([](auto& wrap) {
    auto f = wrap([](const Tensor& x) {
      const auto region = [](const Tensor& y) {
        const Tensor z = y.sin();
        journal::note("region", z);
        return z.tanh();
      };
      return checkpoint(CheckpointPolicy::recompute_everything(), region, Doubled::apply(x));
    });
    Tensors shown;
    for (int64_t call = 0; call < 6; ++call) {
      const Tensor x = numbers(call).requires_grad_();
      shown.push_back(f(x));
      shown.back().sum().backward();
      shown.push_back(x.grad());
    }
    return shown;
  });
}

struct Unhistoric : torch::autograd::Function<Unhistoric> {
  static Tensor forward(AutogradContext*, const Tensor& x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list grads) {
    journal::note("nowhere", grads[0]);
    return grads;
  }
};

TEST(EffectPrograms, ABackwardThatLeadsNowhereRunsEagerly) {
  expect_like_eager(
      [](auto& wrap) {
        auto f = wrap([](const Tensor& x) {
          Tensor view;
          {
            const at::NoGradGuard no_grad;
            view = x.view(x.sizes());
          }
          return x * 2 + Unhistoric::apply(view);
        });
        Tensors shown;
        for (int64_t call = 0; call < 6; ++call) {
          const Tensor x = numbers(call).requires_grad_();
          shown.push_back(f(x));
          shown.back().sum().backward();
          shown.push_back(x.grad());
        }
        return shown;
      },
      Runs::Eagerly);
}

TEST(EffectPrograms, ANumberForTheHostRunsEagerly) {
  expect_like_eager(
      [](auto& wrap) {
        auto f = wrap([](const Tensor& x) { return x * static_cast<double>(journal::length(x)); });
        Tensors shown;
        for (int64_t call = 0; call < 6; ++call) shown.push_back(f(numbers(call)));
        return shown;
      },
      Runs::Eagerly);
}

TEST(EffectPrograms, AnObjectMadeInEachCallRunsEagerly) {
  expect_like_eager(
      [](auto& wrap) {
        auto f = wrap([](const Tensor& x) {
          journal::count(c10::make_intrusive<journal::Counter>(), x);
          return x * 2;
        });
        Tensors shown;
        for (int64_t call = 0; call < 6; ++call) shown.push_back(f(numbers(call)));
        return shown;
      },
      Runs::Eagerly);
}

}  // namespace programs_test
}  // namespace ahead
