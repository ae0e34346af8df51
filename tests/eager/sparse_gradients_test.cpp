#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "eager/harness.h"

/// Tables whose gradients are sparse, trained by compiled functions.
namespace ahead::test {
namespace sparse_gradients_test {

namespace nn = torch::nn;

nn::Embedding sparse_table(int64_t rows = 10) {
  return nn::Embedding(nn::EmbeddingOptions(rows, 4).sparse(true));
}

at::Tensor tokens() {
  return at::randint(0, 10, {3, 2});
}

/// Runs a function of one batch, again and again, and shows the gradients of a table.
template <class Function>
Outcome show_gradients(const Function& function, int calls = 16) {
  return like_eager([&](auto& wrap, Log& log) {
    auto table = sparse_table();
    auto compiled = wrap([table, &function](const at::Tensor& x) mutable {
      return function(table, x);
    });
    for (int call = 0; call < calls; ++call) {
      if (call % 3 != 1) table->zero_grad();
      const at::Tensor result = compiled(tokens());
      result.pow(2).sum().backward();
      log("result", result);
      log("table", *table);
    }
  });
}

TEST(SparseGradients, OfAClassifierTrainedWithSgd) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto table = sparse_table();
    nn::Linear last(4, 3);
    std::vector<at::Tensor> parameters = last->parameters();
    parameters.push_back(table->weight);
    torch::optim::SGD optimizer(parameters, 0.1);
    auto loss_of = wrap([&](const at::Tensor& x, const at::Tensor& y) {
      return nn::functional::cross_entropy(last->forward(table->forward(x).mean(1).relu()), y);
    });
    for (int call = 0; call < 16; ++call) {
      const at::Tensor x = tokens(), y = at::randint(0, 3, {3});
      log("loss", train_step(optimizer, [&] { return loss_of(x, y); }));
      log("table", *table);
      log("last", *last);
    }
  });
  expect_doubling(outcome);
}

TEST(SparseGradients, OfAnLstmWithTwoOptimizers) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto table = sparse_table();
    nn::LSTM lstm(4, 5);
    torch::optim::Adam dense(lstm->parameters(), 0.01);
    torch::optim::Adagrad sparse(table->parameters(), 0.1);
    auto loss_of = wrap([&](const at::Tensor& x) {
      return std::get<0>(lstm->forward(table->forward(x)))[-1].pow(2).mean();
    });
    for (int call = 0; call < 16; ++call) {
      dense.zero_grad();
      log("loss", train_step(sparse, [&] { return loss_of(tokens()); }));
      dense.step();
      log("table", *table);
      log("lstm", *lstm);
    }
  });
  expect_doubling(outcome);
}

TEST(SparseGradients, AreAccumulated) {
  expect_doubling(show_gradients(
      [](auto& table, const at::Tensor& x) { return table->forward(x).tanh(); }));
}

TEST(SparseGradients, OfOneTableUsedTwiceAndThreeTimes) {
  expect_doubling(show_gradients([](auto& table, const at::Tensor& x) {
    return table->forward(x) * table->forward(x.flip(0));
  }));
  expect_doubling(show_gradients([](auto& table, const at::Tensor& x) {
    return table->forward(x) * table->forward(x.flip(0)) * table->forward(x.flip(1));
  }));
}

TEST(SparseGradients, MeetDenseOnes) {
  expect_doubling(show_gradients([](auto& table, const at::Tensor& x) {
    return table->forward(x).matmul(table->weight.t()).log_softmax(-1);
  }));
  expect_doubling(show_gradients([](auto& table, const at::Tensor& x) {
    return table->weight.sum() * table->forward(x) * table->forward(x.flip(0)) *
           table->weight.mean();
  }));
}

TEST(SparseGradients, OfIndicesThatLieOtherwise) {
  expect_doubling(show_gradients(
      [](auto& table, const at::Tensor& x) { return table->forward(x.t()).exp(); }));
  expect_doubling(show_gradients(
      [](auto& table, const at::Tensor& x) { return table->forward(x.to(at::kInt)).exp(); }));
  expect_doubling(show_gradients(
      [](auto& table, const at::Tensor& x) { return table->forward(x.slice(0, 0, 0)).exp(); }));
}

/// In eager the indices are the memory of the batch, and the values may be that of the gradient
/// that came in.
TEST(SparseGradients, ShareMemoryAsInEager) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto first = sparse_table(), second = sparse_table();
    auto compiled =
        wrap([&](const at::Tensor& x) { return first->forward(x) + second->forward(x); });
    const at::Tensor x = at::zeros({3, 2}, at::kLong), tangent = at::ones({3, 2, 4});
    for (int call = 0; call < 16; ++call) {
      x.copy_(tokens());
      first->zero_grad();
      second->zero_grad();
      compiled(x).backward(tangent);
      x.fill_(call % 10);
      tangent.fill_(call);
      first->weight.mutable_grad().mul_(3);
      log("first", *first);
      log("second", *second);
      log("tangent", tangent);
    }
  });
  expect_doubling(outcome);
}

TEST(SparseGradients, OfBags) {
  for (const int mode : {0, 1}) {
    const Outcome outcome = like_eager([mode](auto& wrap, Log& log) {
      nn::EmbeddingBagOptions options(10, 4);
      options.sparse(true);
      if (mode == 0) options.mode(torch::kSum);
      nn::EmbeddingBag bag(options);
      torch::optim::SGD optimizer(bag->parameters(), 0.1);
      auto compiled = wrap(
          [&](const at::Tensor& x, const at::Tensor& offsets) { return bag->forward(x, offsets); });
      for (int call = 0; call < 16; ++call) {
        const at::Tensor x = at::randint(0, 10, {6});
        log("loss", train_step(optimizer, [&] {
              return compiled(x, torch::tensor({0, 2, 2, 5})).pow(2).sum();
            }));
        log("bag", *bag);
      }
    });
    expect_doubling(outcome);
  }
}

TEST(SparseGradients, OfBagsWithWeightsForTheirElements) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    nn::EmbeddingBag bag(
        nn::EmbeddingBagOptions(10, 4).sparse(true).mode(torch::kSum).include_last_offset(true));
    auto compiled = wrap([&](const at::Tensor& x, const at::Tensor& scales) {
      return bag->forward(x, torch::tensor({0, 2, 5, 6}), scales);
    });
    for (int call = 0; call < 16; ++call) {
      const at::Tensor scales = at::rand({6}).requires_grad_();
      bag->zero_grad();
      compiled(at::randint(0, 10, {6}), scales).pow(2).sum().backward();
      log("scales", scales);
      log("bag", *bag);
    }
  });
  expect_doubling(outcome);
}

TEST(SparseGradients, OfManySizes) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto table = sparse_table();
    auto compiled = wrap([&](const at::Tensor& x) { return table->forward(x).mean(1).exp(); });
    for (int call = 0; call < 60; ++call) {
      table->zero_grad();
      compiled(at::randint(0, 10, {2 + call % 4, 3 + call % 3})).sum().backward();
      log("table", *table);
    }
  });
  expect_hits(outcome);
}

TEST(SparseGradients, OfTablesOfManySizes) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto compiled = wrap([](const at::Tensor& table, const at::Tensor& x) {
      return at::embedding(table, x, -1, false, /*sparse=*/true).exp();
    });
    for (int call = 0; call < 60; ++call) {
      const at::Tensor table = at::randn({5 + call % 4, 3}).requires_grad_();
      const at::Tensor passed = call % 8 < 4 ? table : table * 2;
      compiled(passed, at::randint(0, 5, {4})).sum().backward();
      log("table", table);
    }
  });
  expect_hits(outcome);
}

TEST(SparseGradients, OfATableThatIsPassedAgainAndAgain) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto compiled = wrap([](const at::Tensor& table, const at::Tensor& x) {
      return at::embedding(table, x, -1, false, /*sparse=*/true).exp();
    });
    const at::Tensor table = at::randn({10, 3}).requires_grad_();
    for (int call = 0; call < 16; ++call) {
      compiled(table, tokens()).sum().backward();
      log("table", table);
    }
  });
  expect_doubling(outcome);
}

TEST(SparseGradients, AreShownToHooksOfLeaves) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto table = sparse_table();
    nn::Linear last(4, 4);
    for (const at::Tensor& parameter : {table->weight, last->weight}) {
      parameter.register_hook([&log](const at::Tensor& gradient) {
        log("gradient", gradient);
        return gradient * 2;
      });
    }
    auto compiled = wrap([&](const at::Tensor& x) { return last->forward(table->forward(x)); });
    for (int call = 0; call < 16; ++call) {
      compiled(tokens()).pow(2).sum().backward();
      log("table", *table);
      log("last", *last);
    }
  });
  expect_doubling(outcome);
}

/// With hooks the second table, to which only one result leads, is behind a node of its own.
Outcome differentiate_some_results(bool has_hooks) {
  return like_eager([has_hooks](auto& wrap, Log& log) {
    auto first = sparse_table(), second = sparse_table();
    if (has_hooks)
      second->weight.register_hook([&log](const at::Tensor& gradient) { log("seen", gradient); });
    auto compiled = wrap([&](const at::Tensor& x) {
      const at::Tensor h = first->forward(x);
      return std::vector<at::Tensor>{h.tanh(), h * second->forward(x) * first->weight.sum()};
    });
    for (int call = 0; call < 32; ++call) {
      const std::vector<at::Tensor> results = compiled(tokens());
      first->zero_grad();
      if (call % 2 == 0) second->zero_grad();
      if (call % 4 == 3) {
        log("gradients", torch::autograd::grad({results[1].sum()}, {second->weight}));
        continue;
      }
      at::Tensor loss = call % 4 == 0 ? results[0].sum() : results[1].sum();
      if (call % 4 == 2) loss = loss + results[0].sum();
      loss.backward();
      log("first", *first);
      log("second", *second);
    }
  });
}

TEST(SparseGradients, OfSomeResultsOnly) {
  expect_doubling(differentiate_some_results(/*has_hooks=*/false));
  expect_doubling(differentiate_some_results(/*has_hooks=*/true));
}

TEST(SparseGradients, OfTangentsThatLieOtherwise) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto table = sparse_table();
    auto compiled = wrap([&](const at::Tensor& x) { return table->forward(x) * 1.5; });
    for (int call = 0; call < 16; ++call) {
      const at::Tensor tangents[] = {at::randn({3, 2, 4}), at::randn({4, 2, 3}).permute({2, 1, 0}),
                                     at::ones({1}).expand({3, 2, 4})};
      table->zero_grad();
      compiled(tokens()).backward(tangents[call % 3]);
      log("table", *table);
    }
  });
  expect_doubling(outcome);
}

TEST(SparseGradients, OfGraphsThatAreRetained) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto table = sparse_table();
    auto compiled = wrap([&](const at::Tensor& x) { return table->forward(x).pow(3).sum(); });
    for (int call = 0; call < 16; ++call) {
      const at::Tensor loss = compiled(tokens());
      loss.backward({}, /*retain_graph=*/true);
      log("table", *table);
      loss.backward();
      log("table", *table);
    }
  });
  expect_doubling(outcome);
}

TEST(SparseGradients, WithAHistoryAreComputedEagerly) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto table = sparse_table();
    nn::Linear last(4, 4);
    auto compiled =
        wrap([&](const at::Tensor& x) { return last->forward(table->forward(x)).tanh().sum(); });
    for (int call = 0; call < 16; ++call) {
      table->zero_grad();
      last->zero_grad();
      const auto gradients =
          torch::autograd::grad({compiled(tokens())}, {table->weight, last->weight}, {},
                                /*retain_graph=*/true, /*create_graph=*/true);
      log.close("table", gradients[0].detach());
      gradients[1].pow(2).sum().backward();
      log.close("last", *last);
    }
  });
  expect_doubling(outcome);
}

/// What reads a sparse gradient in the function is left to eager.
TEST(SparseGradients, ThatAreReadInsideRunEagerly) {
  expect_eager(show_gradients([](auto& table, const at::Tensor& x) {
    return at::embedding(table->weight * 2, x, -1, false, /*sparse=*/true);
  }));
  expect_eager(show_gradients([](auto& table, const at::Tensor& x) {
    const at::Tensor scaled = table->weight * 2;
    scaled.register_hook([](const at::Tensor& gradient) {
      return gradient.is_sparse() ? gradient * 3 : gradient;
    });
    return at::embedding(scaled, x, -1, false, /*sparse=*/true);
  }));
}

/// How many rows there are is decided by values.
TEST(SparseGradients, BesideAPaddedRow) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    nn::Embedding table(nn::EmbeddingOptions(10, 4).sparse(true).padding_idx(0));
    auto compiled = wrap([&](const at::Tensor& x) {
      return table->forward(x).exp() * table->forward(x.flip(0)) + table->weight.sum();
    });
    auto sizes = wrap([&](const at::Tensor& x) { return table->forward(x).exp(); });
    for (int call = 0; call < 32; ++call) {
      if (call % 3 != 1) table->zero_grad();
      compiled(tokens()).sum().backward();
      log("table", *table);
      const at::Tensor x = at::randint(0, 2, {2, 1 + call % 4});
      sizes(call % 5 == 4 ? at::zeros_like(x) : x).sum().backward();
      log("table", *table);
    }
  });
  expect_hits(outcome);
}

TEST(SparseGradients, OfBagsWithAPaddedRowRunEagerly) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    nn::EmbeddingBag bag(nn::EmbeddingBagOptions(10, 4).sparse(true).padding_idx(0));
    auto compiled = wrap([&](const at::Tensor& x) { return bag->forward(x).exp(); });
    for (int call = 0; call < 8; ++call) {
      bag->zero_grad();
      compiled(tokens()).sum().backward();
      log("bag", *bag);
    }
  });
  expect_eager(outcome);
}

}  // namespace sparse_gradients_test
}  // namespace ahead::test
