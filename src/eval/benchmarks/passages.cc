// Fidelity and perplexity: passages of running text, each with the text that follows. There is no question and no score
// by text; the runner compares predictions.
#include <algorithm>

#include "eval/benchmarks/all.h"
#include "eval/random.h"
#include "eval/task_table.h"
#include "eval/texts.h"
#include "winnow/error.h"

namespace winnow::eval {
namespace {

constexpr int kDefaultPassages = 12;  // passages of a length, over all books
constexpr std::int32_t kPassageLength = 2000;

class Passages : public Benchmark {
 public:
  Passages(std::string_view name, std::string_view summary, std::int32_t n_continuation)
      : name_(name), summary_(summary), n_continuation_(n_continuation) {}

  std::string_view name() const override { return name_; }
  std::string_view summary() const override { return summary_; }
  std::vector<std::string> tasks() const override { return {std::string(name_)}; }
  std::vector<std::string_view> inputs() const override { return {"lengths", "haystack"}; }

  std::vector<Sample> samples(const SampleOptions& options) const override {
    selected_tasks(options, tasks(), name_);
    const std::vector<std::int32_t> lengths =
        options.lengths.empty() ? std::vector<std::int32_t>{kPassageLength} : options.lengths;
    const std::vector<Book> all = books(options);
    std::vector<TokenText> texts;
    for (const Book& book : all) texts.emplace_back(options, book.text);
    std::vector<Sample> samples;
    for (const std::int32_t length : lengths) add_length(all, texts, length, options, samples);
    return samples;
  }

 private:
  // Adds passages of one length. They do not overlap; the books take turns, so that even a few passages cover all
  // books.
  void add_length(const std::vector<Book>& all, const std::vector<TokenText>& texts, std::int32_t length,
                  const SampleOptions& options, std::vector<Sample>& samples) const {
    if (length < 1) {
      throw Error(ErrorCode::kInvalidArgument, "a length is " + std::to_string(length) + " tokens: give 1 or more");
    }
    const auto n_context = static_cast<std::size_t>(length);
    const std::size_t n_needed = n_context + static_cast<std::size_t>(n_continuation_);
    std::vector<std::vector<std::size_t>> slots;
    for (std::size_t b = 0; b < all.size(); ++b) {
      Random random(options.seed, std::string(name_) + "/" + all[b].name + "/" + std::to_string(length));
      const std::size_t n_slots = texts[b].size() / n_needed;
      slots.push_back(random.distinct(n_slots, n_slots));
    }
    const auto most = static_cast<std::size_t>(options.limit > 0 ? options.limit : kDefaultPassages);
    const std::size_t first = samples.size();
    for (std::size_t round = 0, left = all.size(); left > 0 && samples.size() - first < most; ++round) {
      left = 0;
      for (std::size_t b = 0; b < all.size() && samples.size() - first < most; ++b) {
        if (round >= slots[b].size()) continue;
        ++left;
        const std::size_t n_spare = texts[b].size() - slots[b].size() * n_needed;
        const std::size_t begin = texts[b].word_from(slots[b][round] * (n_needed + n_spare / slots[b].size()));
        samples.push_back(passage(all[b], texts[b], begin, n_context));
      }
    }
    if (samples.size() == first) {
      throw Error(ErrorCode::kInvalidArgument, "no text has the " + std::to_string(n_needed) +
                                                   " tokens that a passage of " + std::to_string(length) +
                                                   " takes: name longer ones with --haystack");
    }
  }

  Sample passage(const Book& book, const TokenText& text, std::size_t begin, std::size_t n_context) const {
    const auto n_continuation = static_cast<std::size_t>(n_continuation_);
    const std::size_t end = std::min(text.word_from(begin + n_context), text.size());
    Sample sample;
    sample.task = name_;
    sample.id = book.name + "-" + std::to_string(n_context) + "@" + std::to_string(begin);
    sample.cluster = book.name;
    sample.context = text.text(begin, end);
    sample.coordinates["length"] = static_cast<double>(n_context);
    sample.chat_template = false;
    Turn turn;
    turn.references = {text.text(end, end + n_continuation)};
    turn.max_new = n_continuation_;
    sample.turns.push_back(std::move(turn));
    return sample;
  }

  std::string_view name_, summary_;
  std::int32_t n_continuation_;  // tokens
};

}  // namespace

const Benchmark& fidelity() {
  static const Passages benchmark("fidelity", "predictions of running text compared with the full cache's", 64);
  return benchmark;
}

const Benchmark& perplexity() {
  static const Passages benchmark("perplexity", "perplexity of running text after a cut passage", 256);
  return benchmark;
}

}  // namespace winnow::eval
