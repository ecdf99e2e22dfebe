// A user-defined scorer in one file: value-norm scores an entry by the L1 norm of its value. Once registered, it is
// chosen by name like the built-in ones.
//   own_scorer MODEL.gguf TEXT_FILE "QUESTION" --kv-evict value-norm:power=2 --kv-budget 20%
#include <winnow/winnow.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <sstream>

namespace {

class ValueNorm final : public winnow::Scorer {
 public:
  // The scores depend only on stored values, so the session saves no evidence during prefill.
  winnow::EvidenceNeeds needs(const winnow::EvictionOptions&) const override { return {}; }

  std::vector<winnow::Option> options() const override {
    return {winnow::number_option("power", 0.1, 10, 1, "the norm to the power of this")};
  }

  bool is_non_negative() const override { return true; }

  winnow::LayerScores score(winnow::LayerEvidence& evidence, const winnow::EvictionOptions& options) const override {
    const double power = options.number("power");
    winnow::LayerScores scores = evidence.value_l1_norms();  // [n_kv_head][n_entries]
    evidence.for_each_head([&](int h) {
      std::vector<float>& of_head = scores[static_cast<std::size_t>(h)];
      of_head.resize(static_cast<std::size_t>(evidence.n_prefix(h)));  // the window gets no score
      for (float& score : of_head) score = static_cast<float>(std::pow(score, power));
    });
    return scores;
  }
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw winnow::Error(winnow::ErrorCode::kNotFound, "cannot open " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  if (argc != 8 || arguments[4] != "--kv-evict" || arguments[6] != "--kv-budget") {
    std::cerr << "usage: own_scorer MODEL.gguf TEXT_FILE QUESTION --kv-evict METHOD --kv-budget BUDGET\n";
    return 2;
  }
  try {
    winnow::register_scorer("value-norm", std::make_unique<ValueNorm>());
    winnow::register_method("value-norm", "snapkv:scorer=value-norm,sinks=4", "values of large norm");

    const auto model = winnow::Model::load(arguments[1]);
    const auto engine = winnow::Engine::create(model);
    winnow::Session session = engine->open(
        {.eviction = winnow::EvictionOptions::parse(arguments[5]), .budget = winnow::Budget::parse(arguments[7])});
    session.prefill(model->tokenize(read_file(arguments[2]), /*add_special=*/true, /*parse_special=*/false));
    session.append(model->tokenize("\n\nQuestion: " + arguments[3] + "\nAnswer:", false, false));

    winnow::Sampler sampler(model, {.temperature = 0.0F});
    std::cout << winnow::generate(session, sampler, {.max_tokens = 24, .stops = {"\n\n"}}).text << "\n";
    const winnow::SessionStatistics statistics = session.statistics();
    std::cerr << session.options().eviction.text() << ": " << statistics.entries_kept << " of "
              << statistics.entries_full << " entries kept\n";
  } catch (const winnow::Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
