#include <gtest/gtest.h>

#include <thread>

#include "ahead/ahead.h"

/// Every message that a user of the tracer or the interpreter can see, provoked once.
namespace messages_test {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;

Tensors identity(const Tensors& in) {
  return in;
}

/// Runs `action`, expects an error of this type, and returns its text.
template <class ErrorType>
std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const ErrorType& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no error";
  return "";
}

void expect_contains(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Messages, UndefinedArgument) {
  const auto message = message_of<ahead::UserError>([] { ahead::trace(identity, {Tensor()}); });
  expect_contains(message, "[trace] argument 0: it is an undefined tensor");
}

TEST(Messages, SparseQuantizedAndOtherLayouts) {
  const Tensor sparse = torch::eye(3).to_sparse();
  expect_contains(message_of<ahead::Unsupported>([&] { ahead::trace(identity, {sparse}); }),
                  "a sparse tensor");
  const Tensor csr = torch::eye(3).to_sparse_csr();
  expect_contains(message_of<ahead::Unsupported>([&] { ahead::trace(identity, {csr}); }),
                  "a sparse tensor");
  const Tensor quantized = at::quantize_per_tensor(torch::rand({3}), 0.1, 0, at::kQInt8);
  expect_contains(message_of<ahead::Unsupported>([&] { ahead::trace(identity, {quantized}); }),
                  "a quantized tensor");
  const Tensor nested =
      at::_nested_tensor_from_mask(torch::rand({2, 3, 4}), torch::ones({2, 3}, at::kBool));
  expect_contains(message_of<ahead::Unsupported>([&] { ahead::trace(identity, {nested}); }),
                  "a nested tensor");
  // The same for a captured one.
  auto captures = [&](const Tensors& in) { return Tensors{in[0] + quantized.dequantize()}; };
  expect_contains(
      message_of<ahead::Unsupported>([&] { ahead::trace(captures, {torch::rand({3})}); }),
      "dequantize()");
}

TEST(Messages, NestedTrace) {
  auto nested = [](const Tensors& in) {
    ahead::trace(identity, in);
    return in;
  };
  const auto message =
      message_of<ahead::UserError>([&] { ahead::trace(nested, {torch::rand({2})}); });
  expect_contains(message, "inside a traced function");
}

TEST(Messages, EscapedTensor) {
  Tensor kept;
  auto leaks = [&](const Tensors& in) {
    kept = in[0].sin();
    return Tensors{in[0] * 2};
  };
  auto message = message_of<ahead::Unsupported>([&] { ahead::trace(leaks, {torch::rand({2})}); });
  expect_contains(message, "aten.sin: a traced tensor outlives the trace");
  message = message_of<ahead::UserError>([&] { (void)(kept + 1); });
  expect_contains(message, "a tensor of a finished trace is used");
  message = message_of<ahead::UserError>([&] {
    ahead::trace([&](const Tensors& in) { return Tensors{in[0] + kept}; }, {torch::rand({2})});
  });
  ahead::TraceOptions options;
  options.allow_escapes = true;
  EXPECT_EQ(ahead::trace(leaks, {torch::rand({2})}, options).num_nodes(), 2u);
}

TEST(Messages, EscapedArgument) {
  Tensor kept;
  auto keeps = [&](const Tensors& in) {
    kept = in[0];
    return Tensors{in[0] * 2};
  };
  const auto message =
      message_of<ahead::Unsupported>([&] { ahead::trace(keeps, {torch::rand({2})}); });
  expect_contains(message, "an argument: a traced tensor outlives the trace");
}

TEST(Messages, MetadataMutationOfAnInput) {
  auto transposes = [](const Tensors& in) {
    Tensor x = in[0];
    x.t_();
    return Tensors{x + 1};
  };
  const auto message = message_of<ahead::Unsupported>([&] {
    ahead::trace(transposes, {torch::rand({2, 3})});
  });
  expect_contains(message, "changes the shape or the storage");
}

TEST(Messages, WriteThroughAsStridedOfAView) {
  auto writes = [](const Tensors& in) {
    Tensor y = in[0].clone();
    y.select(0, 0).as_strided({2}, {1}).mul_(2);
    return Tensors{y};
  };
  const auto message = message_of<ahead::Unsupported>([&] {
    ahead::trace(writes, {torch::rand({2, 3})});
  });
  expect_contains(message, "as_strided");
}

TEST(Messages, MutationOfAliasedInputs) {
  Tensor base = torch::rand({4});
  auto writes = [](const Tensors& in) {
    Tensor x = in[0];
    x.mul_(2);
    return Tensors{in[1] + 1};
  };
  const auto message = message_of<ahead::Unsupported>([&] {
    ahead::trace(writes, {base, base.narrow(0, 1, 2)});
  });
  expect_contains(message, "shares its memory");
}

TEST(Messages, MutationInTheBackward) {
  const auto counting = [](Tensor counter) {
    return [counter](const Tensors& in) {
      Tensor y = in[0] * 2;
      y.register_hook([counter](const Tensor& grad) {
        Tensor(counter).add_(1);
        return grad;
      });
      return Tensors{y};
    };
  };
  const Tensors inputs{torch::rand({2}).requires_grad_()};
  const Tensor counter = torch::zeros({1});
  EXPECT_NE(ahead::trace_joint(counting(counter), inputs).str().find("aten.copy_"),
            std::string::npos);
  EXPECT_EQ(counter.item<float>(), 0);
  const auto message_for = [&](const Tensor& written) {
    return message_of<ahead::Unsupported>([&] { ahead::trace_joint(counting(written), inputs); });
  };
  expect_contains(message_for(torch::zeros({1}).expand({3})), "are the same memory");
  const Tensor made_in_inference_mode = [] {
    const c10::InferenceMode mode;
    return torch::zeros({1});
  }();
  expect_contains(message_for(made_in_inference_mode), "[trace]");
}

TEST(Messages, UserExceptionsPassUnchanged) {
  struct Mine : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  auto throws = [](const Tensors& in) -> Tensors {
    Tensor y = in[0] * 2;
    throw Mine("mine");
  };
  EXPECT_EQ(message_of<Mine>([&] { ahead::trace(throws, {torch::rand({2})}); }), "mine");
  // A shape error is eager's own.
  auto mismatch = [](const Tensors& in) { return Tensors{in[0].mm(in[0])}; };
  EXPECT_THROW(mismatch({torch::rand({2, 3})}), c10::Error);
  EXPECT_THROW(ahead::trace(mismatch, {torch::rand({2, 3})}), c10::Error);
  EXPECT_EQ(ahead::trace(identity, {torch::rand({2})}).outputs().size(), 1u);
}

TEST(Messages, InterpreterArgumentCount) {
  Tensor w = torch::rand({2});
  const auto graph =
      ahead::trace([w](const Tensors& in) { return Tensors{in[0] * w}; }, {torch::rand({2})});
  expect_contains(message_of<ahead::UserError>([&] { ahead::interpret(graph, {}); }),
                  "[interpret] 0 arguments: the graph takes 1, or 2");
  const auto parsed = ahead::Graph::parse(graph.str());
  expect_contains(message_of<ahead::UserError>([&] { ahead::interpret(parsed, {w}); }),
                  "captured tensor");
  EXPECT_TRUE(ahead::interpret(parsed, {w, w})[0].equal(w * w));
}

TEST(Messages, ErrorsAreC10Errors) {
  EXPECT_THROW(ahead::trace(identity, {Tensor()}), c10::Error);
  EXPECT_THROW(ahead::Graph::parse("graph"), ahead::UserError);
}

}  // namespace messages_test
