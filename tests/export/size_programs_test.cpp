#include <gtest/gtest.h>
#include <torch/torch.h>

#include <random>

#include "ahead/ahead.h"
#include "support/eager.h"
#include "support/round_trip.h"

/// Random programs over sizes that are read from a tensor: for each number an exported one gives
/// what eager gives, or throws.
namespace ahead::exported_modules {
namespace size_programs_test {

using torch::indexing::None;
using torch::indexing::Slice;

/// One program; the same seed is the same one.
class SizedProgram {
 public:
  SizedProgram(uint64_t seed, at::Tensor& rows, const at::Tensor& n)
      : random_(seed),
        n_(n),
        sizes_{n.item().toSymInt(), (n + 1).item().toSymInt(), n.abs().item().toSymInt()},
        tensors_{rows, torch::ones({4}), rows * 2} {}

  /// Everything counts, so that nothing is dead code.
  at::Tensor run() {
    for (int64_t left = 2 + pick(6); left > 0; --left) tensors_.push_back(step());
    at::Tensor sum = torch::zeros({}, torch::kDouble);
    for (const at::Tensor& tensor : tensors_) sum = sum + tensor.sum().to(torch::kDouble);
    return sum;
  }

 private:
  int64_t pick(uint64_t count) { return static_cast<int64_t>(random_() % count); }
  at::Tensor tensor() { return tensors_[static_cast<size_t>(pick(tensors_.size()))]; }

  c10::SymInt size() {
    const c10::SymInt a = sizes_[static_cast<size_t>(pick(3))];
    const c10::SymInt b = sizes_[static_cast<size_t>(pick(3))];
    switch (pick(9)) {
      case 0:
        return a + 1;
      case 1:
        return a * 2;
      case 2:
        return a - 1;
      case 3:
        return a + b;
      case 4:
        return a / 2;
      case 5:
        return c10::SymInt(pick(7));
      case 6:
        return a.min(3);
      case 7:
        return a % 3;
      default:
        return a;
    }
  }

  at::Tensor step() {
    const at::Tensor x = tensor(), y = tensor();
    const int64_t dim = x.dim() == 0 ? 0 : pick(static_cast<uint64_t>(x.dim()));
    const int64_t which = pick(30);
    return which < 12 ? make_view(which, x, dim) : which < 17 ? write(which, x, y, dim)
                                                              : compute(which, x, y, dim);
  }

  at::Tensor make_view(int64_t which, const at::Tensor& x, int64_t dim) {
    switch (which) {
      case 0:
        return x.slice_symint(dim, 0, size());
      case 1:
        return x.slice_symint(dim, size(), std::nullopt);
      case 2:
        return x.narrow_symint(dim, size(), size());
      case 3:
        return x.transpose(0, -1);
      case 4:
        return x.reshape({-1});
      case 5:
        return x.reshape_symint({size(), -1});
      case 6:
        return x.unsqueeze(dim);
      case 7:
        return x.squeeze();
      case 8:
        return x.expand_symint({size(), -1});
      case 9:
        return x.as_strided_symint({size(), 2}, {2, 1});
      case 10:
        return x.index({Slice(None, size())});
      default:
        return x.view_symint({size(), size()});
    }
  }

  at::Tensor write(int64_t which, at::Tensor x, const at::Tensor& y, int64_t dim) {
    switch (which) {
      case 12:
        x.slice_symint(dim, 0, size()).mul_(2);
        break;
      case 13:
        x.add_(y);
        break;
      case 14:
        x.select_symint(dim, size()).fill_(2);
        break;
      case 15:
        x.view_symint({size(), size()}).mul_(2);
        break;
      default:
        x.index_put_({Slice(None, size())}, y);
    }
    return x + 1;
  }

  at::Tensor compute(int64_t which, const at::Tensor& x, const at::Tensor& y, int64_t dim) {
    switch (which) {
      case 17:
        return torch::full_symint({size(), size()}, 1.5);
      case 18:
        return torch::cat({x, y}, 0);
      case 19:
        return x.sum(dim);
      case 20:
        return x.contiguous() * 2;
      case 21:
        return x.matmul(y);
      case 22:
        return x * n_.item();
      case 23:
        return torch::arange(size());
      case 24:
        return torch::where(x > 0, x, y);
      case 25:
        return x.cumsum(dim).softmax(dim);
      case 26:
        return torch::stack({x, x}).flip({dim});
      case 27:
        return x.repeat_symint({size(), 1});
      case 28:
        return size() > 2 ? x + 1 : x - 1;
      default:
        return x + y;
    }
  }

  std::mt19937 random_;
  const at::Tensor n_;
  const std::vector<c10::SymInt> sizes_;
  std::vector<at::Tensor> tensors_;
};

struct ProgramImpl : torch::nn::Module {
  explicit ProgramImpl(uint64_t s) : seed(s) {
    rows = register_buffer("rows", torch::linspace(-3, 5, 24).reshape({6, 4}));
  }
  at::Tensor forward(const at::Tensor& n) { return SizedProgram(seed, rows, n).run(); }
  uint64_t seed;
  at::Tensor rows;
};
TORCH_MODULE(Program);

at::Tensor number(int64_t n) {
  return torch::full({}, n, torch::kLong);
}

/// How many runs gave what eager gives.
size_t compare(uint64_t seed) {
  aot::ExportedModule exported;
  try {
    exported = aot::export_module(Program(seed), {number(static_cast<int64_t>(seed % 5))});
  } catch (const InternalError&) {
    throw;
  } catch (const c10::Error&) {
    return 0;  // eager throws for this number, or it is refused
  }
  expect_round_trip(exported.graph);
  size_t same = 0;
  for (int64_t n : {0, 1, 2, 3, 4, 6, 7, -1, -2}) {
    SCOPED_TRACE(n);
    const Program eager(seed);
    exported.tensors[0] = eager->rows.clone();
    at::Tensor expected;
    const std::string threw = error_of([&] { expected = eager.ptr()->forward(number(n)); });
    at::Tensor made;
    if (!error_of([&] { made = exported({number(n)}).at(0); }).empty()) continue;
    EXPECT_EQ(threw, "") << exported.graph.str();
    expect_same({expected, eager->rows}, {made, exported.tensors[0]});
    ++same;
  }
  return same;
}

TEST(ExportSizePrograms, AgreeWithEagerOrThrow) {
  size_t same = 0;
  for (uint64_t seed = 0; seed < 200 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    same += compare(seed);
  }
  EXPECT_GT(same, 200u);
}

}  // namespace size_programs_test
}  // namespace ahead::exported_modules
