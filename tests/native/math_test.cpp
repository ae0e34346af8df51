#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "native/variants.h"

namespace ahead::native::math_test {

using test::build_for;
using test::Variant;
class FloatMath : public test::EachVariant {};
class DoubleMath : public test::EachVariant {};

template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

/// Numbers in their order, so that neighbours differ by 1; both zeros are 0.
template <class T>
int64_t place_of(T number) {
  Bits<T> bits;
  std::memcpy(&bits, &number, sizeof(bits));
  return bits < 0 ? static_cast<int64_t>(std::numeric_limits<Bits<T>>::min()) - bits : bits;
}

constexpr int64_t wrong = std::numeric_limits<int64_t>::max();

/// How many numbers lie between a result and the correctly rounded one.
template <class T>
int64_t distance(T result, T expected) {
  if (std::isnan(result) || std::isnan(expected))
    return std::isnan(result) == std::isnan(expected) ? 0 : wrong;
  if (result == 0 && expected == 0 && std::signbit(result) != std::signbit(expected)) return wrong;
  const int64_t a = place_of(result), b = place_of(expected);
  if ((a < 0) != (b < 0) && (std::abs(a) > 1000 || std::abs(b) > 1000)) return wrong;
  return std::abs(a - b);
}

/// A function, what it should be, and by how much it may be off in float32 and in float64.
struct Function {
  const char* name;
  double (*of_double)(double);
  long double (*of_long)(long double);
  int64_t float_ulps;
  int64_t double_ulps;
};

template <class T>
T sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}
template <class T>
T rsqrt(T x) {
  return 1 / std::sqrt(x);
}
template <class T>
T sign(T x) {
  return static_cast<T>((x > 0) - (x < 0));
}
template <class T>
T relu(T x) {
  return x < 0 ? 0 : x;
}

#define BOTH(function) \
  [](double x) { return function(x); }, [](long double x) { return function(x); }
const Function functions[] = {
    {"exp", BOTH(std::exp), 1, 1},     {"exp2", BOTH(std::exp2), 1, 1},
    {"expm1", BOTH(std::expm1), 2, 2}, {"log", BOTH(std::log), 1, 2},
    {"log2", BOTH(std::log2), 2, 2},   {"log10", BOTH(std::log10), 2, 2},
    {"log1p", BOTH(std::log1p), 2, 2}, {"sigmoid", BOTH(sigmoid), 2, 2},
    {"tanh", BOTH(std::tanh), 2, 2},   {"erf", BOTH(std::erf), 2, 2},
    {"erfc", BOTH(std::erfc), 1, 4},   {"sin", BOTH(std::sin), 2, 1},
    {"cos", BOTH(std::cos), 2, 1},     {"tan", BOTH(std::tan), 1, 2},
    {"sqrt", BOTH(std::sqrt), 0, 1},   {"rsqrt", BOTH(rsqrt), 1, 1},
    {"floor", BOTH(std::floor), 0, 0}, {"ceil", BOTH(std::ceil), 0, 0},
    {"trunc", BOTH(std::trunc), 0, 0}, {"round", BOTH(std::nearbyint), 0, 0},
    {"abs", BOTH(std::fabs), 0, 0},    {"sign", BOTH(sign), 0, 0},
    {"relu", BOTH(relu), 0, 0},
};
#undef BOTH

/// A kernel that applies a function to each number of an array.
template <class T>
std::pair<std::string, std::string> map_kernel(const std::string& function) {
  const std::string type = sizeof(T) == 4 ? "f32" : "f64";
  const std::string scalar = sizeof(T) == 4 ? "float" : "double";
  const std::string name = function + "_" + type;
  const std::string step =
      "store_" + type + "(out + i, " + function + "(load_" + type + "(in + i, m)), m)";
  return {name, "extern \"C\" void " + name + "(" + scalar + "* out, const " + scalar +
                    "* in, long n) {\n  long i = 0;\n"
                    "  for (const Full m; i + LANES <= n; i += LANES) " +
                    step + ";\n" + "  if (const Tail m{int(n - i)}; m.n > 0) " + step + ";\n}\n"};
}

template <class T>
using MapKernel = void(T*, const T*, long);

template <class T>
std::vector<KernelAddress> build_functions(const Variant& variant) {
  std::vector<std::pair<std::string, std::string>> kernels;
  for (const Function& function : functions) kernels.push_back(map_kernel<T>(function.name));
  return build_for(variant, kernels);
}

/// The largest distance found so far, and where.
template <class T>
struct Worst {
  int64_t ulps = -1;
  T at = 0, result = 0;

  void take(const Worst& other) {
    if (other.ulps > ulps) *this = other;
  }
};

/// Applies a kernel to numbers and compares with what was expected.
template <class T>
Worst<T> compare(KernelAddress kernel, const std::vector<T>& numbers,
                 const std::vector<T>& expected) {
  std::vector<T> results(numbers.size());
  reinterpret_cast<MapKernel<T>*>(kernel)(results.data(), numbers.data(),
                                          static_cast<long>(numbers.size()));
  Worst<T> worst;
  for (size_t i = 0; i < numbers.size(); ++i)
    worst.take({distance(results[i], expected[i]), numbers[i], results[i]});
  return worst;
}

template <class T>
std::vector<T> special_numbers() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> numbers{0,
                         1,
                         2,
                         3,
                         0.5,
                         88,
                         89,
                         104,
                         709,
                         710,
                         746,
                         1e4,
                         Limits::min(),
                         Limits::max(),
                         Limits::denorm_min(),
                         Limits::infinity(),
                         Limits::quiet_NaN(),
                         Limits::epsilon()};
  for (const T edge : {T(0.5), T(1), T(2), T(88.72283), T(104), T(0.125), T(10), T(4)}) {
    numbers.push_back(std::nextafter(edge, T(0)));
    numbers.push_back(std::nextafter(edge, Limits::infinity()));
  }
  const size_t count = numbers.size();
  for (size_t i = 0; i < count; ++i) numbers.push_back(-numbers[i]);
  return numbers;
}

float float_of(uint32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof(number));
  return number;
}

TEST_P(FloatMath, EveryFunction) {
  constexpr uint64_t prime = 50021;
  std::vector<float> numbers = special_numbers<float>();
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += prime)
    numbers.push_back(float_of(static_cast<uint32_t>(bits)));
  const std::vector<KernelAddress> kernels = build_functions<float>(GetParam());
  std::vector<float> expected(numbers.size());
  for (size_t i = 0; i < kernels.size(); ++i) {
    const Function& function = functions[i];
    ASSERT_NE(kernels[i], nullptr) << function.name;
    for (size_t j = 0; j < numbers.size(); ++j)
      expected[j] = static_cast<float>(function.of_double(numbers[j]));
    const Worst<float> worst = compare(kernels[i], numbers, expected);
    EXPECT_LE(worst.ulps, function.float_ulps)
        << function.name << "(" << worst.at << ") = " << worst.result;
  }
}

TEST_P(DoubleMath, EveryFunction) {
  std::mt19937_64 random(7);
  std::vector<double> numbers = special_numbers<double>();
  for (int i = 0; i < 10000; ++i) {
    const uint64_t bits = random();
    double number;
    std::memcpy(&number, &bits, sizeof(number));
    numbers.push_back(number);
    numbers.push_back(std::ldexp(static_cast<double>(static_cast<int64_t>(random())),
                                 static_cast<int>(bits % 24) - 73));
  }
  const std::vector<KernelAddress> kernels = build_functions<double>(GetParam());
  std::vector<double> expected(numbers.size());
  for (size_t i = 0; i < kernels.size(); ++i) {
    const Function& function = functions[i];
    ASSERT_NE(kernels[i], nullptr) << function.name;
    for (size_t j = 0; j < numbers.size(); ++j)
      expected[j] = static_cast<double>(function.of_long(numbers[j]));
    const Worst<double> worst = compare(kernels[i], numbers, expected);
    EXPECT_LE(worst.ulps, function.double_ulps)
        << function.name << "(" << worst.at << ") = " << worst.result;
  }
}

template <class T>
void check_powers(void (*power)(T*, const T*, const T*, long)) {
  std::vector<T> x, y;
  for (const T a : special_numbers<T>())
    for (const T b : special_numbers<T>()) x.push_back(a), y.push_back(b);
  std::mt19937 random(3);
  std::normal_distribution<T> normal(0, 3);
  while (x.size() < 20000 || x.size() % 64 != 0)
    x.push_back(std::exp(normal(random))), y.push_back(normal(random) * 3);
  std::vector<T> results(x.size());
  power(results.data(), x.data(), y.data(), static_cast<long>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const auto expected =
        static_cast<T>(std::pow(static_cast<long double>(x[i]), static_cast<long double>(y[i])));
    ASSERT_LE(distance(results[i], expected), 1) << x[i] << " ^ " << y[i] << " = " << results[i];
  }
}

template <class T>
void add_powers(test::Batch& batch, const std::string& type, const std::string& scalar) {
  batch.add<void(T*, const T*, const T*, long)>(
      scalar + "* out, const " + scalar + "* x, const " + scalar + "* y, long n",
      "  const Full m;\n  for (long i = 0; i < n; i += LANES)\n    store_" + type +
          "(out + i, pow(load_" + type + "(x + i, m), load_" + type + "(y + i, m)), m);",
      check_powers<T>);
}

TEST_P(FloatMath, Powers) {
  test::Batch batch(GetParam());
  add_powers<float>(batch, "f32", "float");
}

TEST_P(DoubleMath, Powers) {
  test::Batch batch(GetParam());
  add_powers<double>(batch, "f64", "double");
}

/// The variants whose registers these numbers fill, and 8 lanes, which mixed kernels have.
std::vector<Variant> variants_for(size_t bytes_of_number) {
  std::vector<Variant> chosen;
  for (const Variant& variant : test::variants()) {
    const int lanes_of_register =
        find_target(variant.capability).vector_bytes / static_cast<int>(bytes_of_number);
    if (variant.lanes == std::max(4, lanes_of_register) ||
        (variant.lanes == 8 && variant.capability != "DEFAULT"))
      chosen.push_back(variant);
  }
  return chosen;
}

INSTANTIATE_TEST_SUITE_P(Native, FloatMath, ::testing::ValuesIn(variants_for(sizeof(float))));
INSTANTIATE_TEST_SUITE_P(Native, DoubleMath, ::testing::ValuesIn(variants_for(sizeof(double))));

/// Every float32 number, in parts that threads take.
std::vector<Worst<float>> check_all_floats(const Function& function,
                                           const std::vector<KernelAddress>& kernels) {
  constexpr uint64_t part = uint64_t{1} << 20, end = uint64_t{1} << 32;
  std::mutex mutex;
  uint64_t next = 0;
  std::vector<Worst<float>> worst(kernels.size());
  const auto work = [&] {
    std::vector<float> numbers(part), expected(part);
    for (;;) {
      uint64_t begin = 0;
      {
        std::lock_guard<std::mutex> lock(mutex);
        begin = std::exchange(next, next + part);
      }
      if (begin >= end) return;
      for (uint64_t i = 0; i < part; ++i) {
        numbers[i] = float_of(static_cast<uint32_t>(begin + i));
        expected[i] = static_cast<float>(function.of_double(numbers[i]));
      }
      for (size_t k = 0; k < kernels.size(); ++k) {
        const Worst<float> here = compare(kernels[k], numbers, expected);
        std::lock_guard<std::mutex> lock(mutex);
        worst[k].take(here);
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  return worst;
}

TEST(EveryFloat, OfTheFunctionsOfActivations) {
  if (std::getenv("AHEAD_EXHAUSTIVE") == nullptr)
    GTEST_SKIP() << "takes minutes; run with AHEAD_EXHAUSTIVE=1";
  const std::vector<Variant> variants = test::variants();
  std::vector<std::vector<KernelAddress>> kernels;
  for (const Variant& variant : variants) kernels.push_back(build_functions<float>(variant));
  for (size_t i = 0; i < std::size(functions); ++i) {
    const std::string name = functions[i].name;
    if (name != "exp" && name != "log" && name != "sigmoid" && name != "tanh" && name != "erf")
      continue;
    std::vector<KernelAddress> of_variants;
    for (const std::vector<KernelAddress>& all : kernels) of_variants.push_back(all[i]);
    const std::vector<Worst<float>> worst = check_all_floats(functions[i], of_variants);
    for (size_t k = 0; k < variants.size(); ++k) {
      std::cout << name << ", " << variants[k].capability << " with " << variants[k].lanes
                << " lanes: at most " << worst[k].ulps << " ulp, at " << worst[k].at << "\n";
      EXPECT_LE(worst[k].ulps, functions[i].float_ulps) << name << "(" << worst[k].at << ")";
    }
  }
}

}  // namespace ahead::native::math_test
