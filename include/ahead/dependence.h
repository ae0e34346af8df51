#pragma once

#include <concepts>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace ahead {

/// Something beside its arguments that a compiled function depends on: a callable without
/// parameters, whose value decides which program a call runs. The value is anything that can be
/// copied, compared and printed, or a tuple of such.
class Dependence {
 public:
  /// A value that the callable had.
  class Value {
   public:
    virtual ~Value() = default;
    virtual std::string str() const = 0;
  };

  Dependence() = default;
  template <class F>
  requires std::invocable<F&> Dependence(F f)
      : source_(std::make_shared<SourceOf<F>>(std::move(f))) {}

  explicit operator bool() const { return source_ != nullptr; }
  /// The value now. Only if there is a callable.
  std::unique_ptr<const Value> value() const { return source_->value(); }
  /// Whether the value now is this one.
  bool is(const Value& value) const { return source_->is(value); }

 private:
  struct Source {
    virtual ~Source() = default;
    virtual std::unique_ptr<const Value> value() = 0;
    virtual bool is(const Value& value) = 0;
  };

  template <class T>
  static std::string print(const T& value) {
    std::ostringstream text;
    text << value;
    return text.str();
  }
  template <class... T>
  static std::string print(const std::tuple<T...>& values) {
    std::string text;
    std::apply([&](const T&... each) { ((text += (text.empty() ? "" : ", ") + print(each)), ...); },
               values);
    return text;
  }

  template <class T>
  struct ValueOf final : Value {
    explicit ValueOf(T v) : held(std::move(v)) {}
    std::string str() const override { return print(held); }
    T held;
  };

  template <class F>
  struct SourceOf final : Source {
    using Held = std::decay_t<std::invoke_result_t<F&>>;
    explicit SourceOf(F f) : function(std::move(f)) {}
    std::unique_ptr<const Value> value() override {
      return std::make_unique<ValueOf<Held>>(function());
    }
    bool is(const Value& value) override {
      return static_cast<const ValueOf<Held>&>(value).held == function();
    }
    F function;
  };

  std::shared_ptr<Source> source_;
};

}  // namespace ahead
