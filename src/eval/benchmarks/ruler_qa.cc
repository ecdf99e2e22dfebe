// RULER's questions: documents of SQuAD 2.0 or HotpotQA, the right ones among others.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json_file.h"
#include "eval/benchmarks/ruler_generator.h"
#include "eval/task_table.h"

namespace winnow::eval {
namespace fs = std::filesystem;
namespace {

struct Question {
  std::string query;
  std::vector<std::string> outputs;
  std::vector<std::size_t> gold, same_article;  // indices of documents
};

struct Corpus {
  std::vector<std::string> documents;  // sorted, distinct
  std::vector<Question> questions;
};

class Documents {
 public:
  void add(const std::string& text) { index_.emplace(text, 0); }
  std::vector<std::string> number() {
    std::vector<std::string> texts;
    for (auto& [text, index] : index_) {
      index = texts.size();
      texts.push_back(text);
    }
    return texts;
  }
  std::size_t at(const std::string& text) const { return index_.at(text); }

 private:
  std::map<std::string, std::size_t> index_;
};

Corpus read_squad(const nlohmann::json& file) {
  Documents documents;
  for (const auto& article : file.at("data")) {
    for (const auto& paragraph : article.at("paragraphs")) documents.add(paragraph.at("context"));
  }
  Corpus corpus = {documents.number(), {}};
  for (const auto& article : file.at("data")) {
    for (const auto& paragraph : article.at("paragraphs")) {
      const std::size_t gold = documents.at(paragraph.at("context"));
      std::vector<std::size_t> others;
      for (const auto& other : article.at("paragraphs")) {
        const std::size_t index = documents.at(other.at("context"));
        if (index != gold) others.push_back(index);
      }
      for (const auto& qa : paragraph.at("qas")) {
        if (qa.value("is_impossible", false)) continue;
        Question question = {qa.at("question"), {}, {gold}, others};
        for (const auto& answer : qa.at("answers")) question.outputs.push_back(answer.at("text"));
        corpus.questions.push_back(std::move(question));
      }
    }
  }
  return corpus;
}

std::string hotpot_document(const nlohmann::json& document) {
  return document.at(0).get<std::string>() + "\n" + joined(document.at(1).get<std::vector<std::string>>(), "");
}

Corpus read_hotpot(const nlohmann::json& file) {
  Documents documents;
  for (const auto& entry : file) {
    for (const auto& document : entry.at("context")) documents.add(hotpot_document(document));
  }
  Corpus corpus = {documents.number(), {}};
  for (const auto& entry : file) {
    Question question = {entry.at("question"), {entry.at("answer").get<std::string>()}, {}, {}};
    for (const auto& document : entry.at("context")) question.gold.push_back(documents.at(hotpot_document(document)));
    corpus.questions.push_back(std::move(question));
  }
  return corpus;
}

class QaGenerator : public RulerGenerator {
 public:
  explicit QaGenerator(Corpus corpus) : corpus_(std::move(corpus)) {}

  std::size_t smallest() const override { return corpus_.questions[0].gold.size(); }
  std::size_t largest() const override { return corpus_.documents.size(); }
  std::size_t step() const override { return 10; }

  RulerPrompt make(std::size_t n, std::size_t index, Random& random) const override {
    const Question& question = corpus_.questions[index % corpus_.questions.size()];
    std::vector<std::size_t> chosen = question.gold;
    std::set<std::size_t> used(chosen.begin(), chosen.end());
    std::vector<std::size_t> more;
    for (const std::size_t i : question.same_article) {
      if (used.insert(i).second) more.push_back(i);
    }
    random.shuffle(more);
    for (std::size_t i = 0; i < more.size() && chosen.size() < n; ++i) chosen.push_back(more[i]);
    while (chosen.size() < std::min(n, corpus_.documents.size())) {
      const std::size_t other = random.below(corpus_.documents.size());
      if (used.insert(other).second) chosen.push_back(other);
    }
    random.shuffle(chosen);
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      texts.push_back("Document " + std::to_string(i + 1) + ":\n" + corpus_.documents[chosen[i]]);
    }
    const Fields fields = {{"context", joined(texts, "\n\n")}, {"query", question.query}};
    const nlohmann::json& row = ruler_row("qa");
    return {fill(row_text(row, "context"), fields), fill(row_text(row, "question"), fields),
            fill(row_text(row, "prefix"), fields), question.outputs};
  }

 private:
  Corpus corpus_;
};

}  // namespace

fs::path find_qa_source(const std::string& folder, std::string_view task) {
  const auto names = task == "qa_1" ? std::vector<const char*>{"dev-v2.0.json", "squad.json"}
                                    : std::vector<const char*>{"hotpot_dev_distractor_v1.json", "hotpotqa.json"};
  for (const char* name : names) {
    if (fs::is_regular_file(fs::path(folder) / name)) return fs::path(folder) / name;
  }
  return {};
}

RulerGeneratorPtr make_qa_generator(const fs::path& source, std::string_view task) {
  const nlohmann::json file = read_json(source.string(), input::kDataset);
  Corpus corpus;
  try {
    corpus = task == "qa_1" ? read_squad(file) : read_hotpot(file);
  } catch (const nlohmann::json::exception&) {
    refuse_file(source.string(), task == "qa_1" ? "is not SQuAD 2.0" : "is not HotpotQA's distractor set");
  }
  if (corpus.questions.empty()) refuse_file(source.string(), "holds no questions");
  return std::make_unique<QaGenerator>(std::move(corpus));
}

}  // namespace winnow::eval
