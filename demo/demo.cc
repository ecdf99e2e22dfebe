// Asks a model for a fact hidden in a long document, first with the whole KV cache and then with a fifth and a tenth of
// it under several methods, and compares the cost and the changes. Uses the public headers alone.
//   winnow_demo [-t THREADS] MODEL.gguf FOLDER [METHOD...]
// FOLDER has four text files: document.txt; question.txt; answer.txt, the words that a right answer contains;
// continuation.txt, the text that follows the document.
#include <winnow/winnow.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using winnow::Token;

constexpr const char* kUsage =
    "usage: winnow_demo [-t THREADS] MODEL.gguf FOLDER [METHOD...]\n"
    "FOLDER has document.txt, question.txt, answer.txt (words of a right answer) and continuation.txt (how the\n"
    "document goes on). Methods: see `winnow methods`.\n";
constexpr const char* kMethods[] = {"streaming-llm", "tova", "snapkv", "ada-snapkv", "lava"};
constexpr const char* kBudgets[] = {"20%", "10%"};
// Without methods on the command line, `auto` runs too, at a tenth and a twentieth of the full cache's bytes.
constexpr const char* kAuto = "auto";
constexpr const char* kAutoBudgets[] = {"10%bytes", "5%bytes"};
constexpr std::size_t kContinuationTokens = 64;
constexpr int kAnswerTokens = 32;

struct Arguments {
  int n_threads = 0;  // 0: the physical cores
  std::string model;
  std::string folder;
  std::vector<std::string> methods;  // empty: the demo's own list
};

std::optional<Arguments> parse_arguments(int argc, char** argv) {
  Arguments arguments;
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() >= 2 && words[0] == "-t") {
    arguments.n_threads = std::atoi(words[1].c_str());
    if (arguments.n_threads < 1) return std::nullopt;
    words.erase(words.begin(), words.begin() + 2);
  }
  if (words.size() < 2 || words[0].starts_with('-')) return std::nullopt;
  arguments.model = words[0];
  arguments.folder = words[1];
  arguments.methods.assign(words.begin() + 2, words.end());
  return arguments;
}

std::string read_text(const std::string& path) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 20;  // more than the model's context holds
  std::ifstream file(path, std::ios::binary);
  if (!file) throw winnow::Error(winnow::ErrorCode::kNotFound, "cannot open " + path);
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMostBytes) throw winnow::Error(winnow::ErrorCode::kBadFile, path + " has more than a MiB");
  while (text.ends_with('\n')) text.pop_back();
  if (text.empty()) throw winnow::Error(winnow::ErrorCode::kInvalidArgument, path + " is empty: put some text into it");
  return text;
}

// The tokens of the conversation, in the pieces in which they are fed.
struct Task {
  std::vector<Token> document;      // begin token, start of the user's turn, document
  std::vector<Token> question;      // question, end of the turn, start of the assistant's
  std::vector<Token> continuation;  // [kContinuationTokens] or fewer: the text after the document
  std::string answer;
};

Task read_task(const winnow::Model& model, const std::string& folder) {
  winnow::SplitPrompt prompt{read_text(folder + "/document.txt"), "\n\n" + read_text(folder + "/question.txt")};
  if (model.has_chat_template()) prompt = winnow::split_chat(model, "", prompt.before, prompt.after);
  winnow::PromptTokens tokens = winnow::tokenize(model, prompt);
  Task task{.document = std::move(tokens.context),
            .question = std::move(tokens.question),
            .continuation = model.tokenize("\n\n" + read_text(folder + "/continuation.txt"), false, false),
            .answer = read_text(folder + "/answer.txt")};
  if (task.continuation.size() > kContinuationTokens) task.continuation.resize(kContinuationTokens);
  return task;
}

struct Row {
  std::string method;
  winnow::SessionStatistics document;  // right after the document was read and cut
  double decode_tps = 0;
  double divergence = 0;
  bool found_before = false;        // asked with document and question read together, then cut
  std::optional<bool> found_after;  // asked with the document cut before the question was known
};

class Demo {
 public:
  Demo(std::shared_ptr<winnow::Engine> engine, Task task) : engine_(std::move(engine)), task_(std::move(task)) {}

  void run(const std::string& method, const std::string& budget) {
    winnow::SessionOptions options;
    options.eviction = winnow::EvictionOptions::parse(method);
    if (options.eviction.evicts()) options.budget = winnow::Budget::parse(budget);
    Row row;
    row.method = method;
    std::printf("%s%s%s\n", method.c_str(), options.budget ? ", keeping " : "", options.budget ? budget.c_str() : "");
    {
      winnow::Session session = engine_->open(options);
      session.prefill(task_.document);
      row.document = session.statistics();
      follow_continuation(session.fork(), row);
      session.append(task_.question);
      const bool found = answer(session, options.budget ? "cut, then asked" : "asked");
      if (options.budget) {
        row.found_after = found;
      } else {
        row.found_before = found;  // nothing is cut, so both orders are the same
      }
    }
    if (options.budget) {
      options.question_aware = true;
      winnow::Session session = engine_->open(options);
      std::vector<Token> prompt = task_.document;
      prompt.insert(prompt.end(), task_.question.begin(), task_.question.end());
      session.prefill(prompt);
      row.found_before = answer(session, "asked, then cut");
    }
    rows_.push_back(std::move(row));
  }

  void print_table() const {
    std::printf("\n%-22s %5s %8s %6s  %8s %8s  %7s  %7s  %s\n", "", "kept", "entries", "MiB", "prefill", "decode",
                "peak KV", "mean KL", "found, asked");
    std::printf("%-22s %5s %8s %6s  %8s %8s  %7s  %7s  %s\n", "method", "%", "kept", "kept", "t/s", "t/s", "MiB",
                "nats", "after/before");
    for (const Row& row : rows_) {
      const winnow::SessionStatistics& document = row.document;
      const double kept =
          100.0 * static_cast<double>(document.entries_kept) / static_cast<double>(document.entries_full);
      std::printf("%-22s %5.1f %8lld %6.2f  %8.0f %8.1f  %7.2f  %7.4f  %-5s / %s\n", row.method.substr(0, 22).c_str(),
                  kept, static_cast<long long>(document.entries_kept), mebibytes(document.bytes_kept),
                  static_cast<double>(document.prompt_tokens) / document.prefill_s, row.decode_tps,
                  mebibytes(document.bytes_peak), row.divergence,
                  row.found_after ? (*row.found_after ? "yes" : "no") : "-", row.found_before ? "yes" : "no");
    }
  }

 private:
  static double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0); }

  // Feeds the continuation token by token. The other runs' distributions are compared with those of the first run,
  // which has the full cache.
  void follow_continuation(winnow::Session session, Row& row) {
    const bool first_run = rows_.empty();
    double sum = 0;
    for (std::size_t i = 0; i < task_.continuation.size(); ++i) {
      session.decode(task_.continuation[i]);
      const std::span<const float> logits = session.logits();
      std::vector<float> distribution(logits.size());
      winnow::log_softmax(logits, distribution);
      if (first_run) {
        full_.push_back(std::move(distribution));
      } else {
        sum += winnow::kl_divergence(full_[i], 0, distribution, 0);
      }
    }
    const winnow::SessionStatistics statistics = session.statistics();
    row.decode_tps = static_cast<double>(statistics.decoded_tokens) / statistics.decode_s;
    row.divergence = sum / static_cast<double>(task_.continuation.size());
  }

  bool answer(winnow::Session& session, const char* order) {
    std::printf("  %-16s", order);
    std::fflush(stdout);
    winnow::SamplingOptions greedy;
    greedy.temperature = 0.0f;
    winnow::Sampler sampler(engine_->model(), greedy);
    const winnow::GenerationResult result = winnow::generate(
        session, sampler, {.max_tokens = kAnswerTokens, .feed_last = false}, [](const winnow::GenerationStep& step) {
          for (const char c : step.text) std::putchar(c == '\n' ? ' ' : c);
          std::fflush(stdout);
          return true;
        });
    std::printf("\n");
    return result.text.find(task_.answer) != std::string::npos;
  }

  std::shared_ptr<winnow::Engine> engine_;
  Task task_;
  std::vector<Row> rows_;
  std::vector<std::vector<float>> full_;  // [n_continuation][n_vocab], logarithms of probabilities
};

void run(const Arguments& arguments) {
  const std::shared_ptr<const winnow::Model> model = winnow::Model::load(arguments.model);
  const std::shared_ptr<winnow::Engine> engine = winnow::Engine::create(model, {.n_threads = arguments.n_threads});
  Task task = read_task(*model, arguments.folder);
  std::printf("%s, %d threads; %s/document.txt has %zu tokens\n\n", model->info().name.c_str(), engine->n_threads(),
              arguments.folder.c_str(), task.document.size());
  Demo demo(engine, std::move(task));
  demo.run("full", "");
  const bool is_own_choice = arguments.methods.empty();
  for (const std::string& method :
       is_own_choice ? std::vector<std::string>(std::begin(kMethods), std::end(kMethods)) : arguments.methods) {
    for (const char* budget : kBudgets) demo.run(method, budget);
  }
  for (const char* budget : kAutoBudgets) {
    if (is_own_choice) demo.run(kAuto, budget);
  }
  demo.print_table();
}

}  // namespace

int main(int argc, char** argv) {
  const std::optional<Arguments> arguments = parse_arguments(argc, argv);
  if (!arguments) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  try {
    run(*arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
