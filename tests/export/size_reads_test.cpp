#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "ahead/ahead.h"
#include "support/eager.h"
#include "support/new_process.h"
#include "support/round_trip.h"

namespace ahead::exported_modules {
namespace size_reads_test {

using aot::ExportedModule;
using Tensors = std::vector<at::Tensor>;
using torch::indexing::None;
using torch::indexing::Slice;

/// A module with a buffer of six rows whose forward is given.
struct ReaderImpl : torch::nn::Module {
  using Forward = std::function<at::Tensor(at::Tensor& rows, const at::Tensor& n)>;
  explicit ReaderImpl(Forward f) : run(std::move(f)) {
    rows = register_buffer("rows", torch::arange(24, torch::kFloat).reshape({6, 4}));
  }
  at::Tensor forward(const at::Tensor& n) { return run(rows, n); }
  Forward run;
  at::Tensor rows;
};
TORCH_MODULE(Reader);

using Forward = ReaderImpl::Forward;

at::Tensor number(int64_t n) {
  return torch::full({}, n, torch::kLong);
}

c10::SymInt size_in(const at::Tensor& n) {
  return n.item().toSymInt();
}

ExportedModule exported_for(const Forward& forward, int64_t traced = 3,
                            const aot::ExportOptions& options = {}) {
  return aot::export_module(Reader(forward), {number(traced)}, options);
}

/// The module with a buffer of its own, as it is before the first call.
ExportedModule fresh(ExportedModule exported) {
  exported.tensors[0] = exported.tensors[0].clone();
  return exported;
}

/// Exports the module with one number, and compares it with itself for others, and what both leave
/// in the buffer.
void expect_same_for(const std::vector<int64_t>& numbers, const Forward& forward,
                     const aot::ExportOptions& options = {}, int64_t traced = 3) {
  const ExportedModule exported = exported_for(forward, traced, options);
  expect_round_trip(exported.graph);
  SCOPED_TRACE(exported.graph.str());
  for (int64_t n : numbers) {
    SCOPED_TRACE(n);
    const Reader eager(forward);
    const ExportedModule own = fresh(exported);
    torch::manual_seed(5);
    const at::Tensor expected = eager.ptr()->forward(number(n));
    torch::manual_seed(5);
    const Tensors made = own.prepare()({number(n)});
    expect_same({expected, eager.ptr()->rows}, {made.at(0), own.tensors[0]});
    const ExportedModule other = fresh(exported);
    torch::manual_seed(5);
    expect_same({expected}, other({number(n)}));
  }
}

/// What a run with this number says.
std::string said_for(int64_t n, const Forward& forward) {
  const ExportedModule exported = exported_for(forward);
  return error_of([&] { fresh(exported)({number(n)}); });
}

/// What exporting it says.
std::string complaint(const Forward& forward, const aot::ExportOptions& options = {}) {
  try {
    exported_for(forward, 3, options);
  } catch (const DataDependent& error) {
    return error.what_without_backtrace();
  } catch (const Error& error) {
    return "other: " + std::string(error.what_without_backtrace());
  }
  return "nothing";
}

void expect_says(const std::string& said, const std::string& text) {
  EXPECT_NE(said.find(text), std::string::npos) << said;
}

TEST(ExportSizeReads, MakeTensors) {
  const std::vector<int64_t> numbers{3, 0, 1, 2, 70};
  expect_same_for(numbers, [](at::Tensor&, const at::Tensor& n) {
    return torch::full_symint({size_in(n)}, 2.5);
  });
  expect_same_for(numbers, [](at::Tensor&, const at::Tensor& n) {
    const c10::SymInt size = size_in(n);
    return torch::full_symint({size + 1, size * 2}, 2.5) * 2;
  });
  expect_same_for(numbers, [](at::Tensor&, const at::Tensor& n) {
    const c10::SymInt size = size_in(n.to(torch::kInt));
    return (torch::ones_symint({size, size}).tril() + torch::zeros_symint({size})).sum(0);
  });
  expect_same_for(numbers, [](at::Tensor& rows, const at::Tensor& n) {
    return rows.repeat_symint({size_in(n), 1});
  });
  expect_same_for(numbers, [](at::Tensor&, const at::Tensor& n) {
    return torch::randn_symint({size_in(n), 4}) + torch::rand_symint({4});
  });
}

TEST(ExportSizeReads, Count) {
  const std::vector<int64_t> numbers{3, 0, 1, 2, 70};
  expect_same_for(numbers,
                  [](at::Tensor&, const at::Tensor& n) { return torch::arange(n.item()); });
  expect_same_for(numbers, [](at::Tensor&, const at::Tensor& n) {
    return torch::arange(-2, n.item(), torch::kFloat);
  });
  expect_same_for(numbers,
                  [](at::Tensor&, const at::Tensor& n) { return torch::arange(0, n.item(), 2); });
  expect_same_for({3, 10, 8, 9, -1},
                  [](at::Tensor&, const at::Tensor& n) { return torch::arange(10, n.item(), -3); });
  expect_same_for({3, 0, 6}, [](at::Tensor& rows, const at::Tensor& n) {
    return rows.index({torch::arange(n.item())}) + rows.index_select(0, torch::arange(n.item()));
  });
}

TEST(ExportSizeReads, CutRows) {
  const std::vector<int64_t> numbers{3, 0, 1, 2, 6};
  expect_same_for(numbers, [](at::Tensor& rows, const at::Tensor& n) {
    return rows.slice_symint(0, 0, size_in(n));
  });
  expect_same_for(numbers, [](at::Tensor& rows, const at::Tensor& n) {
    return rows.index({Slice(None, size_in(n))}).relu().flatten() + 1;
  });
  expect_same_for({3, 0, 1, 5}, [](at::Tensor& rows, const at::Tensor& n) {
    return rows.narrow_symint(0, 1, size_in(n)) * 2;
  });
  expect_same_for({3, 0, 1, 4}, [](at::Tensor& rows, const at::Tensor& n) {
    return rows.narrow_symint(0, size_in(n), 2) * 2;
  });
  expect_same_for({3, 0, 5}, [](at::Tensor& rows, const at::Tensor& n) {
    return rows.select_symint(0, size_in(n)) + 1;
  });
  expect_same_for(numbers, [](at::Tensor& rows, const at::Tensor& n) {
    const at::Tensor part = rows.slice_symint(0, 0, size_in(n));
    return torch::cat({part, rows}).matmul(rows.t()).softmax(0) +
           torch::full_symint({part.sym_size(0) + 6, 6}, 2.5);
  });
  expect_same_for(numbers, [](at::Tensor& rows, const at::Tensor& n) {
    return rows.slice_symint(0, 0, size_in(n).min(6).max(0)).cumsum(0);
  });
}

TEST(ExportSizeReads, AreNumbersAsWell) {
  const std::vector<int64_t> numbers{3, 0, 1, -2, (1 << 24) + 1};
  expect_same_for(numbers,
                  [](at::Tensor& rows, const at::Tensor& n) { return rows * n.item() + n.item(); });
  expect_same_for(numbers, [](at::Tensor& rows, const at::Tensor& n) {
    return torch::where((torch::arange(6) < n.item()).unsqueeze(1), rows, 0.5);
  });
}

TEST(ExportSizeReads, FollowFromOneAnother) {
  expect_same_for({3, 0, 1, 7}, [](at::Tensor&, const at::Tensor& n) {
    const c10::SymInt rows = size_in(n), columns = size_in(n + 1);
    return torch::full_symint({rows, columns}, 1.5).sum(0);
  });
  expect_same_for({3, 0, 1, 7}, [](at::Tensor&, const at::Tensor& n) {
    const at::Tensor twos = torch::full_symint({size_in(n)}, 2, torch::kLong);
    return torch::full_symint({size_in(twos.sum())}, 1.5);
  });
  // Written to before it is read.
  expect_same_for({3, 0, 1, 7}, [](at::Tensor& rows, const at::Tensor& n) {
    rows.add_(2);
    return torch::full_symint({size_in(rows[0][1].to(torch::kLong) + n)}, 1.5);
  });
}

TEST(ExportSizeReads, WriteToABuffer) {
  const Forward scale = [](at::Tensor& rows, const at::Tensor& n) {
    rows.slice_symint(0, 0, size_in(n)).mul_(2);
    return rows + 1;
  };
  expect_same_for({3, 0, 1, 6}, scale);
  expect_same_for({3, 0, 1, 6}, scale, {.keep_input_mutations = true});
  expect_same_for({3, 0, 1, 5}, [](at::Tensor& rows, const at::Tensor& n) {
    const c10::SymInt size = size_in(n);
    rows.index_put_({Slice(None, size)}, torch::ones_symint({size, 4}));
    return rows.sum(0);
  });
  const ExportedModule exported = exported_for(scale);
  EXPECT_EQ(exported.signature.buffers_to_mutate().at(0), "rows");
  EXPECT_EQ(exported.signature.user_inputs(), std::vector<std::string>{"arg0"});
}

TEST(ExportSizeReads, DivideAsIntegersDo) {
  expect_same_for({3, 0, 1, 2, 70}, [](at::Tensor&, const at::Tensor& n) {
    const c10::SymInt size = size_in(n);
    return torch::full_symint({size / 2, size % 2, size * 4 / 2}, 1.5);
  });
  expect_same_for({3, 1, 2, 8}, [](at::Tensor&, const at::Tensor& n) {
    const c10::SymInt size = size_in(n);
    return torch::full_symint({-size / 3 + 9, -size % 3 + 9, size / -3 + 9}, 1.5);
  });
  expect_says(said_for(-3,
                       [](at::Tensor&, const at::Tensor& n) {
                         return torch::full_symint({size_in(n) / 2 + 9}, 1.5);
                       }),
              "[interpret] ahead.expect_relation: -3 >= 0 does not hold");
}

TEST(ExportSizeReads, ThatAreNoneGetLibTorchsOwnError) {
  EXPECT_EQ(said_for(-1,
                     [](at::Tensor&, const at::Tensor& n) {
                       return torch::full_symint({size_in(n)}, 2.5);
                     }),
            "Trying to create tensor with negative dimension -1: [-1]");
  EXPECT_EQ(
      said_for(-1, [](at::Tensor&, const at::Tensor& n) { return torch::arange(n.item()) + 1; }),
      "upper bound and lower bound inconsistent with step sign");
  EXPECT_EQ(said_for(7,
                     [](at::Tensor& rows, const at::Tensor& n) {
                       return rows.select_symint(0, size_in(n)) + 1;
                     }),
            "select(): index 7 out of range for tensor of size [6, 4] at dimension 0");
  // A view that has no memory.
  expect_says(said_for(7,
                       [](at::Tensor& rows, const at::Tensor& n) {
                         return rows.as_strided_symint({size_in(n), 8}, {4, 1}) + 1;
                       }),
              "are out of bounds for storage of size 96");
}

TEST(ExportSizeReads, AreCheckedWhereSomethingIsDecidedByThem) {
  const auto expect_refused = [](const std::vector<int64_t>& good, int64_t bad,
                                 const std::string& relation, const Forward& forward) {
    expect_same_for(good, forward);
    expect_says(said_for(bad, forward),
                "[interpret] ahead.expect_relation: " + relation + " does not hold");
  };
  const Forward branch = [](at::Tensor& rows, const at::Tensor& n) {
    return size_in(n) > 2 ? rows + 1 : rows - 1;
  };
  expect_refused({3, 4, 90}, 2, "2 < 2", branch);
  const Forward loop = [](at::Tensor& rows, const at::Tensor& n) {
    const c10::SymInt size = size_in(n);
    at::Tensor sum = rows;
    for (c10::SymInt i = 0; i < size; i = i + 1) sum = sum + rows;
    return sum;
  };
  expect_refused({3}, 4, "3 >= 4", loop);
  const Forward behind_the_end = [](at::Tensor& rows, const at::Tensor& n) {
    return rows.slice_symint(0, 0, size_in(n)).sum(0);
  };
  expect_refused({3, 6}, 7, "6 >= 7", behind_the_end);
  expect_refused({3, 6}, -1, "-1 >= 0", behind_the_end);
  const Forward broadcast = [](at::Tensor&, const at::Tensor& n) {
    return torch::ones_symint({size_in(n)}) + torch::full_symint({size_in(n * 1)}, 1.5);
  };
  expect_refused({3, 2, 0}, 1, "1 != 1", broadcast);
  // What was 1 stays 1.
  const Forward expand = [](at::Tensor& rows, const at::Tensor& n) {
    return rows + torch::ones_symint({size_in(n), 4});
  };
  expect_same_for({1}, expand, {}, /*traced=*/1);
  const ExportedModule exported = exported_for(expand, 1);
  expect_says(error_of([&] { exported({number(6)}); }), "6 == 1 does not hold");
}

// No decision is asked for: the number of rows is that of the tensor, and stays so.
TEST(ExportSizeReads, ResultsAreWhatTheGraphSays) {
  expect_says(said_for(-1,
                       [](at::Tensor& rows, const at::Tensor& n) {
                         return rows.unsqueeze(0).expand_symint({size_in(n), 6, 4}).sum({1});
                       }),
              "[interpret] aten::expand: it returned f32[1, 6, 4], but f32[s0, 6, 4]{0, 4, 1} was "
              "to follow from the sizes that the graph reads from tensors");
}

TEST(ExportSizeReads, PlainNumbersAreRefused) {
  const std::string name = "[trace] aten._local_scalar_dense: ";
  for (const Forward& forward : std::vector<Forward>{
           [](at::Tensor&, const at::Tensor& n) { return torch::full({n.item<int64_t>()}, 1.5); },
           [](at::Tensor& rows, const at::Tensor& n) { return rows * n.item<double>(); },
           [](at::Tensor& rows, const at::Tensor& n) { return n.is_nonzero() ? rows + 1 : rows; },
           [](at::Tensor& rows, const at::Tensor& n) {
             return rows * n.to(torch::kFloat).item().toFloat();
           },
           [](at::Tensor& rows, const at::Tensor& n) { return rows.chunk(n.item().toLong())[0]; },
           [](at::Tensor& rows, const at::Tensor& n) {
             return rows.slice_symint(0, 0, size_in(n)).unbind()[0] + 1;
           }}) {
    EXPECT_EQ(complaint(forward).rfind(name, 0), 0u) << complaint(forward);
  }
  const std::string said = name +
                           "a size that is read from a tensor is asked for as a plain number, "
                           "which it is not before the graph runs. Keep it as c10::SymInt";
  for (const Forward& forward : std::vector<Forward>{
           [](at::Tensor&, const at::Tensor& n) {
             return torch::full({size_in(n).expect_int()}, 1.5);
           },
           [](at::Tensor& rows, const at::Tensor& n) {
             return torch::zeros({rows.slice_symint(0, 0, size_in(n)).size(0)});
           },
           [](at::Tensor& rows, const at::Tensor& n) {
             return torch::zeros(rows.slice_symint(0, 0, size_in(n)).sizes());
           },
           [](at::Tensor& rows, const at::Tensor& n) {
             return torch::zeros({rows.slice_symint(0, 0, size_in(n)).numel()});
           },
           [](at::Tensor& rows, const at::Tensor& n) {
             rows.resize__symint({size_in(n), 4});
             return rows + 1;
           }}) {
    EXPECT_EQ(complaint(forward).rfind(said, 0), 0u) << complaint(forward);
  }
}

TEST(ExportSizeReads, OfWhatCannotBeKnownAreRefused) {
  expect_says(complaint([](at::Tensor&, const at::Tensor&) {
                return torch::full_symint({size_in(torch::randint(5, {}))}, 1.5);
              }),
              "[export] aten._local_scalar_dense: the number is made by aten.randint, which is "
              "random or has an effect");
  expect_says(complaint([](at::Tensor& rows, const at::Tensor& n) {
                return std::get<0>(rows.slice_symint(0, 0, size_in(n)).sort(0));
              }),
              "other: [trace] aten.sort: it is not known how its results follow from sizes, so "
              "that it takes no size that is read from a tensor");
}

TEST(ExportSizeReads, BesideGradientsAreRefused) {
  const Forward loss = [](at::Tensor& rows, const at::Tensor& n) {
    return rows.slice_symint(0, 0, size_in(n)).sum();
  };
  expect_says(complaint(loss, {.trace_joint = true, .output_loss_index = 0}),
              "[trace] aten._local_scalar_dense: it returns a value of the tensor to the host");
  const at::Tensor rows = torch::ones({6}).requires_grad_();
  const auto flat = [](const Tensors& inputs) {
    return Tensors{inputs[0].slice_symint(0, 0, size_in(inputs[1])).sum()};
  };
  EXPECT_THROW(aot::export_joint(flat, {rows, number(3)}), DataDependent);
  EXPECT_THROW(trace(flat, {rows, number(3)}), DataDependent);

  const ExportedModule exported = exported_for(loss);
  for (const auto& cut : {std::function<void()>([&] { partition_default(exported.graph); }),
                          std::function<void()>([&] { partition_min_cut(exported.graph); })}) {
    expect_says(error_of(cut),
                "[partition] ahead.local_scalar_dense: the graph reads a size from a tensor while "
                "it runs. One half cannot hand it to the other");
  }
}

TEST(ExportSizeReads, AreRunByTheInterpreter) {
  const Forward forward = [](at::Tensor& rows, const at::Tensor& n) {
    return (rows.slice_symint(0, 0, size_in(n)) * 2 + 1).tanh();
  };
  const ExportedModule exported = exported_for(forward);
  for (const char* backend : {"interpreter", "native", "native_strict"}) {
    for (int64_t n : {0, 3, 6}) {
      expect_same({Reader(forward)->forward(number(n))}, exported.prepare(backend)({number(n)}));
    }
  }
  register_backend("fixed_sizes_only", [](const aot::CompileRequest& request) -> aot::Executable {
    return [graph = request.graph](Tensors&& args) { return interpret(graph, std::move(args)); };
  });
  expect_says(error_of([&] { exported.prepare("fixed_sizes_only"); }),
              "The backend \"fixed_sizes_only\" takes graphs of fixed sizes only");
  Graph graph = exported.graph;
  expect_says(error_of([&] { lift_effect_tokens(graph); }), "Leave tokens out");
}

TEST(ExportSizeReads, RunInAnotherProcess) {
  const std::string folder = ::testing::TempDir() + "ahead_export_size_reads";
  const Forward forward = [](at::Tensor& rows, const at::Tensor& n) {
    return rows.slice_symint(0, 0, size_in(n)) + torch::arange(4);
  };
  exported_for(forward).save(folder);
  Tensors expected;
  for (int64_t n : {0, 1, 5}) expected.push_back(Reader(forward)->forward(number(n)));
  torch::save(expected, folder + "/expected.pt");
  test::expect_in_new_process([folder] {
    Tensors expected;
    torch::load(expected, folder + "/expected.pt");
    const ExportedModule loaded = ExportedModule::load(folder);
    const Graph read = Graph::parse(loaded.graph.str());
    bool all_same = true;
    for (const at::Tensor& result : expected) {
      const at::Tensor n = number(result.size(0));
      all_same &= same_bits(result, loaded({n})[0]);
      all_same &= same_bits(result, interpret(read, {loaded.tensors[0], n})[0]);
    }
    return all_same && !error_of([&] { loaded({number(7)}); }).empty();
  });
}

TEST(ExportSizeReads, AreNotKeptBeyondTheTrace) {
  auto kept = std::make_shared<c10::SymInt>(0);
  exported_for([kept](at::Tensor& rows, const at::Tensor& n) {
    *kept = size_in(n);
    return *kept > 4 ? rows : rows + 1;
  });
  expect_says(error_of([&] { EXPECT_TRUE(*kept > 4); }), "a size of a finished trace is used");
  const Forward later = [kept](at::Tensor&, const at::Tensor&) {
    return torch::full_symint({*kept}, 2.5);
  };
  expect_says(complaint(later), "aten.full: a size of another trace is used");
  const Forward mixed = [kept](at::Tensor&, const at::Tensor& n) {
    return torch::full_symint({size_in(n) + *kept}, 2.5);
  };
  expect_says(complaint(mixed), "s0 and s0: sizes of two traces meet");
}

}  // namespace size_reads_test
}  // namespace ahead::exported_modules
