#include "bind_scorer.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind_evidence.h"
#include "bindings.h"
#include "winnow/error.h"
#include "winnow/option.h"
#include "winnow/registry.h"
#include "winnow/scorer.h"

namespace winnow::python {

namespace nb = nanobind;
using namespace nb::literals;

std::mutex ScorerErrors::mutex_;
ScorerErrors* ScorerErrors::active_ = nullptr;

ScorerErrors::ScorerErrors() {
  const std::lock_guard lock(mutex_);
  if (active_ != nullptr) throw Error(ErrorCode::kInvalidArgument, "one evaluation at a time: wait for the other");
  active_ = this;
}

ScorerErrors::~ScorerErrors() {
  const std::lock_guard lock(mutex_);
  active_ = nullptr;
}

void ScorerErrors::pass_on() {
  {
    const std::lock_guard lock(mutex_);
    if (active_ == nullptr) throw;
    if (!active_->first_) active_->first_ = std::current_exception();
  }
  throw Error(ErrorCode::kCancelled, "a scorer in Python failed");
}

void ScorerErrors::rethrow() const {
  if (first_) std::rethrow_exception(first_);
}

namespace {

// The properties of a scorer that may be declared again, in a notebook's cell that runs twice.
struct Description {
  Needed needed;
  bool is_attention = false, is_non_negative = false;
};

// Holds no Python objects, because Python ends before the registry: the functions are in the table of winnow.scorers.
class PythonScorer final : public Scorer {
 public:
  PythonScorer(std::string name, std::vector<Option> options) : name_(std::move(name)), options_(std::move(options)) {}

  void describe(const Description& description) {
    const std::lock_guard lock(mutex_);
    description_ = description;
  }

  EvidenceNeeds needs(const EvictionOptions& options) const override { return description().needed.needs(options); }
  std::vector<Option> options() const override { return options_; }
  bool is_attention() const override { return description().is_attention; }
  bool is_non_negative() const override { return description().is_non_negative || description().is_attention; }

  LayerScores score(LayerEvidence& layer, const EvictionOptions& options) const override {
    const nb::gil_scoped_acquire acquire;
    try {
      return call(layer, options);
    } catch (...) {
      ScorerErrors::pass_on();
    }
  }

 private:
  Description description() const {
    const std::lock_guard lock(mutex_);
    return description_;
  }

  LayerScores call(LayerEvidence& layer, const EvictionOptions& options) const {
    const nb::object object = nb::cast(Evidence{name_, description().needed, &layer, &options});
    // After the call, however it ends, an object that Python still holds must not reach the layer.
    const auto forget = [](Evidence* evidence) { evidence->layer = nullptr, evidence->options = nullptr; };
    const std::unique_ptr<Evidence, decltype(forget)> held(nb::cast<Evidence*>(object), forget);
    const nb::object made = nb::module_::import_("winnow.scorers").attr("_score")(name_, object);
    using Row = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
    LayerScores scores;
    for (const nb::handle row : made) {
      const auto array = nb::cast<Row>(row);
      scores.emplace_back(array.data(), array.data() + array.size());
    }
    return scores;
  }

  const std::string name_;
  const std::vector<Option> options_;
  mutable std::mutex mutex_;
  Description description_;
};

// A scorer of the registry, which owns it and never frees it. It has no method yet if its preset was refused.
struct Registered {
  PythonScorer* scorer = nullptr;
  bool has_method = false;
};

std::map<std::string, Registered>& registered() {
  static std::map<std::string, Registered> table;
  return table;
}

bool are_alike(const std::vector<Option>& a, const std::vector<Option>& b) {
  return std::ranges::equal(a, b, [](const Option& x, const Option& y) {
    return std::tie(x.name, x.values, x.fallback) == std::tie(y.name, y.values, y.fallback);
  });
}

void describe_scorer(const std::string& name, const std::vector<std::string>& needs, std::vector<Option> options,
                     bool is_attention, bool is_non_negative, const std::string& preset, const std::string& summary) {
  Description description{.needed = {}, .is_attention = is_attention, .is_non_negative = is_non_negative};
  for (const std::string& need : needs) description.needed.add(need);
  Registered& known = registered()[name];
  if (known.scorer == nullptr) {
    auto scorer = std::make_unique<PythonScorer>(name, std::move(options));
    PythonScorer* const it = scorer.get();
    register_scorer(name, std::move(scorer));
    known.scorer = it;
  } else if (!are_alike(options, known.scorer->options())) {
    throw Error(ErrorCode::kInvalidArgument,
                "the scorer '" + name + "' already exists with other options: choose another name");
  }
  known.scorer->describe(description);
  if (known.has_method) return;
  register_method(name, preset, summary);
  known.has_method = true;
}

}  // namespace

void bind_scorer(nb::module_& module) {
  nb::class_<Option>(module, "Option").def_ro("name", &Option::name).def_ro("fallback", &Option::fallback);
  module.def("number_option", &number_option, "name"_a, "min"_a, "max"_a, "fallback"_a, "summary"_a);
  module.def("integer_option", &integer_option, "name"_a, "min"_a, "max"_a, "fallback"_a, "summary"_a);
  module.def("choice_option", &choice_option, "name"_a, "choices"_a, "fallback"_a, "summary"_a);
  module.def("describe_scorer", &describe_scorer, "name"_a, "needs"_a, "options"_a, "is_attention"_a,
             "is_non_negative"_a, "preset"_a, "summary"_a);
}

}  // namespace winnow::python
