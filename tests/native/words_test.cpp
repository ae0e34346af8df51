#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "ahead/errors.h"
#include "native/lower/lower.h"
#include "native/print/print_kernel.h"
#include "native/variants.h"

namespace ahead::native::words_test {

using test::Batch;
class Words : public test::EachVariant {};

/// An array whose end is the end of what may be read or written.
template <class T>
class GuardedArray {
 public:
  explicit GuardedArray(size_t size) : page_(static_cast<size_t>(::sysconf(_SC_PAGESIZE))) {
    memory_ = static_cast<char*>(
        ::mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ::mprotect(memory_ + page_, page_, PROT_NONE);
    begin_ = reinterpret_cast<T*>(memory_ + page_) - size;
  }
  GuardedArray(const GuardedArray&) = delete;
  GuardedArray& operator=(const GuardedArray&) = delete;
  ~GuardedArray() { ::munmap(memory_, 2 * page_); }
  T* begin() const { return begin_; }

 private:
  size_t page_;
  char* memory_;
  T* begin_;
};

/// Copies every number of lanes, next to each other and with gaps.
template <class T>
void check_copying(void (*copy)(T*, const T*, long, int), int lanes) {
  for (const int stride : {1, 3})
    for (int n = 0; n <= lanes; ++n) {
      const size_t size = n == 0 ? 0 : static_cast<size_t>((n - 1) * stride + 1);
      const GuardedArray<T> in(size), out(size);
      for (size_t i = 0; i < size; ++i) {
        in.begin()[i] = static_cast<T>(i % 2 == 0 ? i : 0);
        out.begin()[i] = static_cast<T>(1);
      }
      copy(out.begin(), in.begin(), stride, n);
      for (size_t i = 0; i < size; ++i) {
        const bool is_copied = i % static_cast<size_t>(stride) == 0;
        ASSERT_EQ(out.begin()[i], is_copied ? in.begin()[i] : static_cast<T>(1)) << n << ", " << i;
      }
    }
}

template <class T>
void add_copies(Batch& batch, const std::string& type, const std::string& scalar) {
  const std::string load = "load_" + type + "(in", store = "store_" + type + "(out, ";
  batch.add<void(T*, const T*, long, int)>(
      scalar + "* out, const " + scalar + "* in, long stride, int n",
      "  const Tail t{n};\n  const Full f;\n"
      "  if (stride == 1 && n == LANES) " +
          store + load + ", f), f);\n" + "  else if (stride == 1) " + store + load + ", t), t);\n" +
          "  else if (n == LANES) " + store + load + ", stride, f), stride, f);\n" + "  else " +
          store + load + ", stride, t), stride, t);",
      [lanes = batch.variant().lanes](auto* copy) { check_copying<T>(copy, lanes); });
}

TEST_P(Words, LoadAndStoreTailsOfEveryLength) {
  Batch batch(GetParam());
  add_copies<float>(batch, "f32", "float");
  add_copies<double>(batch, "f64", "double");
  add_copies<c10::BFloat16>(batch, "bf16", "unsigned short");
  add_copies<c10::Half>(batch, "f16", "unsigned short");
  add_copies<int64_t>(batch, "i64", "long");
  add_copies<int32_t>(batch, "i32", "int");
  add_copies<int16_t>(batch, "i16", "short");
  add_copies<int8_t>(batch, "i8", "signed char");
  add_copies<uint8_t>(batch, "u8", "unsigned char");
  add_copies<bool>(batch, "bool", "bool");
}

/// Numbers on and around every number of a 16-bit type, and around the middles between them.
template <class Narrow>
std::vector<float> numbers_around_all() {
  std::vector<float> numbers;
  for (uint32_t bits = 0; bits < 1u << 16; ++bits) {
    const auto number =
        static_cast<float>(Narrow(static_cast<uint16_t>(bits), Narrow::from_bits()));
    const auto next =
        static_cast<float>(Narrow(static_cast<uint16_t>(bits + 1), Narrow::from_bits()));
    for (const float center : {number, number / 2 + next / 2})
      for (const float toward : {-INFINITY, center, INFINITY})
        numbers.push_back(std::nextafter(center, toward));
  }
  while (numbers.size() % 64 != 0) numbers.push_back(0);
  return numbers;
}

template <class Narrow>
void check_rounding(void (*round)(uint16_t*, float*, float*, const float*, long)) {
  const std::vector<float> numbers = numbers_around_all<Narrow>();
  std::vector<uint16_t> stored(numbers.size());
  std::vector<float> loaded(numbers.size()), rounded(numbers.size());
  round(stored.data(), loaded.data(), rounded.data(), numbers.data(),
        static_cast<long>(numbers.size()));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const Narrow expected(numbers[i]);
    const auto expected_float = static_cast<float>(expected);
    if (std::isnan(numbers[i])) {
      ASSERT_TRUE(std::isnan(loaded[i]) && std::isnan(rounded[i])) << numbers[i];
      continue;
    }
    ASSERT_EQ(stored[i], expected.x) << numbers[i];
    ASSERT_EQ(std::memcmp(&loaded[i], &expected_float, sizeof(float)), 0) << numbers[i];
    ASSERT_EQ(std::memcmp(&rounded[i], &expected_float, sizeof(float)), 0) << numbers[i];
  }
}

template <class Narrow>
void add_rounding(Batch& batch, const std::string& type) {
  batch.add<void(uint16_t*, float*, float*, const float*, long)>(
      "unsigned short* stored, float* loaded, float* rounded, const float* in, long n",
      "  const Full m;\n"
      "  for (long i = 0; i < n; i += LANES) {\n"
      "    const F x = load_f32(in + i, m);\n"
      "    store_" +
          type +
          "(stored + i, x, m);\n"
          "    store_f32(loaded + i, load_" +
          type +
          "(stored + i, m), m);\n"
          "    store_f32(rounded + i, round_" +
          type + "(x), m);\n  }",
      check_rounding<Narrow>);
}

TEST_P(Words, RoundToSixteenBits) {
  Batch batch(GetParam());
  add_rounding<c10::BFloat16>(batch, "bf16");
  add_rounding<c10::Half>(batch, "f16");
}

std::string scalar_of(const std::string& type) {
  if (type == "f32") return "float";
  if (type == "f64") return "double";
  if (type == "i64") return "long";
  return type == "bool" ? "bool" : "int";
}

/// Applies `expression` of x, a vector of one type, and compares with a function of numbers.
template <class To, class From, class Expected>
void check_each(Batch& batch, const std::string& from, const std::string& to,
                const std::string& expression, std::vector<From> numbers, Expected expected) {
  while (numbers.size() % 64 != 0) numbers.push_back(From{});
  batch.add<void(To*, const From*, long)>(
      scalar_of(to) + "* out, const " + scalar_of(from) + "* in, long n",
      "  const Full m;\n  for (long i = 0; i < n; i += LANES) {\n    const auto x = load_" + from +
          "(in + i, m);\n    store_" + to + "(out + i, " + expression + ", m);\n  }",
      [numbers, expected](auto* run) {
        const std::unique_ptr<To[]> results(new To[numbers.size()]);
        run(results.get(), numbers.data(), static_cast<long>(numbers.size()));
        for (size_t i = 0; i < numbers.size(); ++i) {
          const auto result = static_cast<double>(results[i]);
          const auto wanted = static_cast<double>(static_cast<To>(expected(numbers[i])));
          if (std::isnan(result) && std::isnan(wanted)) continue;
          ASSERT_EQ(result, wanted) << numbers[i];
          ASSERT_EQ(std::signbit(result), std::signbit(wanted)) << numbers[i];
        }
      });
}

template <class To, class From>
To convert(From number) {
  return static_cast<To>(number);
}

TEST_P(Words, Convert) {
  Batch batch(GetParam());
  const std::vector<float> floats{0.0f,   -0.0f, 1.5f,         -1.5f,        0.99f,
                                  -7.99f, 1e6f,  -16777217.0f, 2147483520.0f};
  const std::vector<double> doubles{0.0, -0.0, 0.1, -2.5, 1e9, -2147483647.9, 1.0 / 3};
  const std::vector<int> ints{0, 1, -1, 255, 256, -129, 16777217, -2147483647, 2147483647};
  const std::vector<int64_t> longs{0, -1, 7, 2147483648, -2147483649, 9007199254740993, 16777217};
  check_each<int>(batch, "f32", "i32", "to_i(x)", floats, convert<int, float>);
  check_each<int64_t>(batch, "f32", "i64", "to_l(x)", floats, convert<int64_t, float>);
  check_each<double>(batch, "f32", "f64", "to_d(x)", floats, convert<double, float>);
  check_each<bool>(batch, "f32", "bool", "to_mask(x)", floats, convert<bool, float>);
  check_each<float>(batch, "f64", "f32", "to_f(x)", doubles, convert<float, double>);
  check_each<int>(batch, "f64", "i32", "to_i(x)", doubles, convert<int, double>);
  check_each<int64_t>(batch, "f64", "i64", "to_l(x)", doubles, convert<int64_t, double>);
  check_each<bool>(batch, "f64", "bool", "mask_i(to_mask(x))", doubles, convert<bool, double>);
  check_each<float>(batch, "i32", "f32", "to_f(x)", ints, convert<float, int>);
  check_each<double>(batch, "i32", "f64", "to_d(x)", ints, convert<double, int>);
  check_each<int64_t>(batch, "i32", "i64", "to_l(x)", ints, convert<int64_t, int>);
  check_each<int>(batch, "i32", "i32", "wrap_i8(x)", ints, convert<int8_t, int>);
  check_each<int>(batch, "i32", "i32", "wrap_u8(x)", ints, convert<uint8_t, int>);
  check_each<int>(batch, "i32", "i32", "wrap_i16(x)", ints, convert<int16_t, int>);
  check_each<float>(batch, "i64", "f32", "to_f(x)", longs, convert<float, int64_t>);
  check_each<double>(batch, "i64", "f64", "to_d(x)", longs, convert<double, int64_t>);
  check_each<int>(batch, "i64", "i32", "to_i(x)", longs, convert<int, int64_t>);
  check_each<int64_t>(batch, "bool", "i64", "from_mask(mask_l(x))", std::vector<char>{0, 1},
                      convert<int64_t, char>);
}

TEST_P(Words, KeepNaNsAsATenDoes) {
  Batch batch(GetParam());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> numbers{nan, -nan, 0.0f, -0.0f, 1.0f, -1.0f, 5.0f, INFINITY, -INFINITY};
  const auto always_nan = [&](float) { return nan; };
  const std::string a_nan = "set_f(__builtin_nanf(\"\"))", minus_one = "set_f(-1.f)";
  for (const std::string word : {"maximum", "minimum"}) {
    check_each<float>(batch, "f32", "f32", word + "(x, " + a_nan + ")", numbers, always_nan);
    check_each<float>(batch, "f32", "f32", word + "(" + a_nan + ", x)", numbers, always_nan);
  }
  const auto larger = [](float x) { return x < -1 ? -1 : x; };
  const auto smaller = [](float x) { return x > -1 ? -1 : x; };
  check_each<float>(batch, "f32", "f32", "maximum(x, " + minus_one + ")", numbers, larger);
  check_each<float>(batch, "f32", "f32", "maximum(" + minus_one + ", x)", numbers, larger);
  check_each<float>(batch, "f32", "f32", "at_least(x, " + minus_one + ")", numbers, larger);
  check_each<float>(batch, "f32", "f32", "minimum(x, " + minus_one + ")", numbers, smaller);
  check_each<float>(batch, "f32", "f32", "minimum(" + minus_one + ", x)", numbers, smaller);
  check_each<float>(batch, "f32", "f32", "at_most(x, " + minus_one + ")", numbers, smaller);
  check_each<float>(batch, "f32", "f32", "copysign(" + minus_one + ", x)", numbers,
                    [](float x) { return std::copysign(1.0f, x); });
  check_each<float>(batch, "f32", "f32", "select(x < 0.f, -x, x)",
                    std::vector<float>{1.0f, -2.0f, 3.0f}, [](float x) { return std::fabs(x); });
}

TEST_P(Words, MultiplyAndAddRoundAsTheProcessorDoes) {
  Batch batch(GetParam());
  const bool rounds_once = GetParam().capability != "DEFAULT";
  const auto by_float = [=](float x) {
    const volatile float squared = x * x;
    return rounds_once ? std::fma(x, x, -1.0f) : squared - 1;
  };
  const auto by_double = [=](double x) {
    const volatile double squared = x * x;
    return rounds_once ? std::fma(x, x, -1.0) : squared - 1;
  };
  check_each<float>(batch, "f32", "f32", "multiply_add(x, x, set_f(-1.f))",
                    std::vector<float>{1.0001f, 0.3f, -1.7f, 1e20f, INFINITY, 0.0f, 1e-30f},
                    by_float);
  check_each<double>(batch, "f64", "f64", "multiply_add(x, x, set_d(-1.))",
                     std::vector<double>{1.00001, 0.3, -1.7, 1e200, INFINITY, 0.0, 1e-200},
                     by_double);
}

/// The same tree as in the words.
template <class T, class Combine>
T fold(std::vector<T> lanes, const Combine& combine) {
  for (size_t half = lanes.size() / 2; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i) lanes[i] = combine(lanes[i], lanes[i + half]);
  return lanes[0];
}

template <class T>
void check_reductions(void (*reduce)(T*, const T*, int), size_t count) {
  std::vector<T> lanes(count);
  for (size_t i = 0; i < count; ++i)
    lanes[i] = static_cast<T>(1.1 * static_cast<double>(i % 5) - 2.3);
  for (size_t n = 0; n <= count; ++n) {
    T out[6];
    reduce(out, lanes.data(), static_cast<int>(n));
    const auto kept = [&](T identity) {
      std::vector<T> first(count, identity);
      std::copy_n(lanes.begin(), n, first.begin());
      return first;
    };
    EXPECT_EQ(out[0], fold(kept(0), std::plus<T>())) << n;
    EXPECT_EQ(out[1], fold(kept(1), std::multiplies<T>())) << n;
    EXPECT_EQ(out[2], fold(kept(-100), [](T a, T b) { return std::max(a, b); })) << n;
    EXPECT_EQ(out[3], fold(kept(100), [](T a, T b) { return std::min(a, b); })) << n;
    EXPECT_EQ(out[4], 2) << n;
    EXPECT_EQ(out[5], fold(lanes, std::plus<T>())) << n;
  }
}

template <class T>
void add_reductions(Batch& batch, const std::string& type) {
  const std::string scalar = scalar_of(type);
  batch.add<void(T*, const T*, int)>(
      scalar + "* out, const " + scalar + "* in, int n",
      "  const auto all = load_" + type +
          "(in, Full{});\n"
          "  out[0] = sum_lanes(keep_first(all, 0, Tail{n}));\n"
          "  out[1] = product_lanes(keep_first(all, 1, Tail{n}));\n"
          "  out[2] = max_lanes(keep_first(all, -100, Tail{n}));\n"
          "  out[3] = min_lanes(keep_first(all, 100, Tail{n}));\n"
          "  out[4] = any((all == in[0]) & (all != all)) ? 1 : any(all == in[0]) ? 2 : 0;\n"
          "  out[5] = sum_lanes(keep_first(all, 0, Full{}));",
      [count = static_cast<size_t>(batch.variant().lanes)](auto* reduce) {
        check_reductions<T>(reduce, count);
      });
}

TEST_P(Words, ReduceInAFixedOrder) {
  Batch batch(GetParam());
  add_reductions<float>(batch, "f32");
  add_reductions<double>(batch, "f64");
  add_reductions<int32_t>(batch, "i32");
  add_reductions<int64_t>(batch, "i64");
}

INSTANTIATE_TEST_SUITE_P(Native, Words, ::testing::ValuesIn(test::variants()));
INSTANTIATE_TEST_SUITE_P(SeveralRegisters, Words,
                         ::testing::Values(test::Variant{at::get_cpu_capability(), 32}));

TEST(Prelude, HoldsWhatTheTextNames) {
  EXPECT_EQ(with_prelude("int x;\n", 8), "#undef LANES\n#define LANES 8\nint x;\n");
  const std::string text = with_prelude("F f(F x) { return exp(x); }\n", 8);
  EXPECT_NE(text.find("INLINE F exp(F x)"), std::string::npos);
  EXPECT_NE(text.find("VECTOR(float, F);"), std::string::npos);
  EXPECT_EQ(text.find("double"), std::string::npos) << text;
  EXPECT_EQ(text.find("tanh"), std::string::npos) << text;
  EXPECT_NE(with_prelude("D f(D x) { return exp(x); }\n", 8).find("INLINE D exp(D x)"),
            std::string::npos);
}

TEST(Prelude, TakesTheLanesOfAllKernels) {
  for (const char* dtype : {"f32", "f64", "i64"}) {
    const std::string type = dtype;
    const Kernel kernel =
        lower(Graph::parse("graph(%0: " + type + "[64] Primal 0):\n  %1: " + type +
                           "[64] = aten.neg(%0)\n  return (%1 Output 0)\n"));
    for (const int vector_bytes : {16, 32, 64}) {
      const PrintedKernel printed = print_kernel(kernel, vector_bytes);
      EXPECT_NO_THROW(with_prelude(printed.text, printed.lanes)) << dtype << ", " << vector_bytes;
    }
  }
}

TEST(Prelude, TakesPowersOfTwo) {
  for (const int lanes : {0, 1, 3, 24, 128}) EXPECT_THROW(with_prelude("", lanes), InternalError);
}

}  // namespace ahead::native::words_test
