// llama-server's own routes, and completions with more than a single prompt.
#include <ggml-cpp.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "server/dialects/llama_dialect.h"
#include "server/http_test_support.h"
#include "server/indent_limit.h"
#include "server/infill.h"

namespace winnow::server {
namespace {

class LlamaHttpTest : public HttpTest {
 protected:
  Json ask(const std::string& path, const Json& body) { return answer_to(path, body); }
  std::vector<Json> events(const std::string& path, Json body) {
    body["stream"] = true;
    const auto answer = post(path, body.dump());
    EXPECT_EQ(answer->status, 200) << answer->body;
    std::vector<Json> all;
    std::istringstream lines(answer->body);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("data: {")) all.push_back(Json::parse(line.substr(6)));
    }
    return all;
  }
};

TEST_F(LlamaHttpTest, Completion) {
  start();
  const Json body = {{"prompt", "the hat"},  {"grammar", "root ::= \"so it is\""},
                     {"cache_prompt", true}, {"id_slot", -1},
                     {"n_predict", 20},      {"seed", -1}};
  const Json answer = ask("/completion", body);
  EXPECT_EQ(answer["content"], "so it is");
  EXPECT_EQ(answer["stop"], true);
  EXPECT_EQ(answer["stop_type"], "eos");
  EXPECT_GT(answer["tokens_evaluated"], 0);
  EXPECT_GT(answer["timings"]["predicted_n"], 0);
  std::string text;
  const std::vector<Json> all = events("/completion", body);
  for (const Json& event : all) text += event["content"];
  EXPECT_EQ(text, "so it is");
  EXPECT_EQ(all.back()["stop"], true);
  EXPECT_EQ(all.front()["stop"], false);
  Json more = body;
  more["n_predict"] = 2;
  EXPECT_EQ(ask("/completion", more)["stop_type"], "limit");
  more = body;
  more["stop"] = {" it"};
  const Json stopped = ask("/completion", more);
  EXPECT_EQ(stopped["stop_type"], "word");
  EXPECT_EQ(stopped["stopping_word"], " it");
  more = body;
  more.erase("grammar");
  more["json_schema"] = {{"const", 7}};
  EXPECT_EQ(ask("/completion", more)["content"], "7");
}

TEST_F(LlamaHttpTest, Probabilities) {
  start();
  const Json body = {{"prompt", "the hat"}, {"n_predict", 3}, {"n_probs", 2}, {"ignore_eos", true}};
  const Json answer = ask("/completion", body);
  ASSERT_EQ(answer["completion_probabilities"].size(), 3U);
  for (const Json& token : answer["completion_probabilities"]) {
    EXPECT_EQ(token["top_logprobs"].size(), 2U);
    EXPECT_EQ(token["id"], token["top_logprobs"][0]["id"]);  // greedy
    EXPECT_LE(token["logprob"], 0);
  }
  int n = 0;
  for (const Json& event : events("/completion", body)) {
    n += static_cast<int>(event.value("completion_probabilities", Json::array()).size());
  }
  EXPECT_EQ(n, 3);
}

TEST_F(LlamaHttpTest, SeveralAnswers) {
  start();
  Json body = {{"prompt", "the hat"},
               {"n_predict", 3},
               {"ignore_eos", true},
               {"return_tokens", true},
               {"grammar", "root ::= [a-z]+"}};
  const Json alone = ask("/completion", body);
  ASSERT_EQ(alone["tokens"].size(), 3U);
  EXPECT_FALSE(alone.contains("completion_probabilities"));
  EXPECT_EQ(ask("/detokenize", {{"tokens", alone["tokens"]}})["content"], alone["content"]);
  for (const char* name : {"n", "n_cmpl"}) {
    Json several = body;
    several[name] = 2;
    const Json answers = ask("/completion", several);
    ASSERT_EQ(answers.size(), 2U) << name;
    std::vector<Json> tokens(2, Json::array());
    int n_ends = 0;
    for (const Json& event : events("/completion", several)) {
      Json& list = tokens[event["index"].get<std::size_t>()];
      list.insert(list.end(), event["tokens"].begin(), event["tokens"].end());
      n_ends += event["stop"] == true ? 1 : 0;
    }
    EXPECT_EQ(n_ends, 2);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(answers[i]["index"], i);
      EXPECT_EQ(answers[i]["content"], alone["content"]);  // greedy
      EXPECT_EQ(answers[i]["tokens"], alone["tokens"]);
      EXPECT_EQ(answers[i]["tokens_predicted"], 3);
      EXPECT_EQ(answers[i]["tokens_evaluated"], alone["tokens_evaluated"]);
      EXPECT_EQ(tokens[i], alone["tokens"]);
    }
  }
  EXPECT_EQ(Json::parse(post("/completion", R"({"prompt":"a","n_cmpl":99})")->body)["error"]["param"], "n_cmpl");
}

TEST_F(LlamaHttpTest, BiasesHold) {
  start();
  Json body = {{"prompt", "the hat"}, {"n_predict", 1}, {"n_probs", 1}, {"ignore_eos", true}};
  const Json first = ask("/completion", body)["completion_probabilities"][0]["id"];
  body["logit_bias"] = Json::array({Json::array({first, false})});
  EXPECT_NE(ask("/completion", body)["completion_probabilities"][0]["id"], first);
}

TEST_F(LlamaHttpTest, SeveralPrompts) {
  start();
  const Json body = {{"prompt", {"the hat", "the cat and the hat", "a"}}, {"max_tokens", 8}, {"ignore_eos", true}};
  const Json answer = ask("/v1/completions", body);
  ASSERT_EQ(answer["choices"].size(), 3U);
  int n_tokens = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    Json alone = body;
    alone["prompt"] = body["prompt"][i];
    const Json one = ask("/v1/completions", alone);
    EXPECT_EQ(answer["choices"][i]["index"], i);
    EXPECT_EQ(answer["choices"][i]["text"], one["choices"][0]["text"]);
    n_tokens += one["usage"]["prompt_tokens"].get<int>();
  }
  EXPECT_EQ(answer["usage"]["prompt_tokens"], n_tokens);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 24);
  std::vector<std::string> texts(3);
  for (const Json& event : events("/v1/completions", body)) {
    const Json& choice = event["choices"][0];
    texts[choice["index"].get<std::size_t>()] += choice["text"];
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(answer["choices"][i]["text"], texts[i]);
  EXPECT_EQ(ask("/completion", {{"prompt", {"a", "b"}}, {"n_predict", 1}}).size(), 2U);
  EXPECT_EQ(post("/completion", R"({"prompt":["a","b"],"stream":true})")->status, 400);
  const Json both =
      ask("/completion", {{"prompt", {"a", "the hat and the cat"}}, {"n_predict", 3}, {"ignore_eos", true}});
  for (const Json& one : both) EXPECT_EQ(one["tokens_predicted"], 3);
  EXPECT_LT(both[0]["tokens_evaluated"], both[1]["tokens_evaluated"]);
  // One prompt that cannot be answered ends the whole request.
  Json wrong = body;
  wrong["prompt"][1] = std::string(3000, 'x');
  EXPECT_EQ(post("/v1/completions", wrong.dump())->status, 400);
  wait_until([this] { return batch_->statistics().n_answering == 0; });
}

// lm-eval asks for likelihoods in this way: the prompts are tokens with their continuations, echoed with probabilities.
TEST_F(LlamaHttpTest, LikelihoodsOfPrompts) {
  start();
  const Json context = ask("/tokenize", {{"content", "the hat"}, {"add_special", true}})["tokens"];
  const Json greedy = ask("/v1/completions", {{"prompt", context},
                                              {"max_tokens", 3},
                                              {"temperature", 0},
                                              {"logprobs", 2},
                                              {"ignore_eos", true}})["choices"][0]["logprobs"];
  Json whole = context;
  {
    const Json again = ask("/completion", {{"prompt", context},
                                           {"n_predict", 3},
                                           {"temperature", 0},
                                           {"n_probs", 1},
                                           {"ignore_eos", true}})["completion_probabilities"];
    for (const Json& token : again) whole.push_back(token["id"]);
  }
  const std::size_t n = context.size();
  ASSERT_EQ(whole.size(), n + 3);
  for (const int max_tokens : {0, 1}) {
    const Json answered = ask("/v1/completions", {{"prompt", {whole, context}},
                                                  {"max_tokens", max_tokens},
                                                  {"temperature", 0},
                                                  {"logprobs", 2},
                                                  {"seed", 1234},
                                                  {"echo", true}});
    ASSERT_EQ(answered["choices"].size(), 2U);
    const Json& logprobs = answered["choices"][0]["logprobs"];
    const std::size_t n_told = n + 3 + static_cast<std::size_t>(max_tokens);
    for (const char* field : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
      EXPECT_EQ(logprobs[field].size(), n_told) << field;
    }
    EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
    EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(logprobs["tokens"][n + i], greedy["tokens"][i]);
      EXPECT_NEAR(logprobs["token_logprobs"][n + i], greedy["token_logprobs"][i], 0.05);
      // lm-eval calls a token greedy if it has the highest probability.
      double highest = -1e9;
      for (const auto& [text, value] : logprobs["top_logprobs"][n + i].items())
        highest = std::max<double>(highest, value);
      EXPECT_EQ(logprobs["token_logprobs"][n + i], highest);
    }
    EXPECT_EQ(answered["choices"][1]["logprobs"]["tokens"].size(), n + static_cast<std::size_t>(max_tokens));
    EXPECT_EQ(answered["usage"]["completion_tokens"], 2 * max_tokens);
  }
  // Offsets count characters of the echoed text, which does not include the begin token.
  const Json text =
      ask("/v1/completions", {{"prompt", "h\u00e9 the"}, {"max_tokens", 1}, {"logprobs", 0}, {"echo", true}});
  const Json& choice = text["choices"][0];
  EXPECT_TRUE(choice["text"].get<std::string>().starts_with("h\u00e9 the"));
  const Json& offsets = choice["logprobs"]["text_offset"];
  EXPECT_EQ(offsets[0], 0);
  EXPECT_EQ(offsets[1], 0);
  EXPECT_EQ(offsets.back(), 6);
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"a","echo":true,"logprobs":1,"stream":true})")->status, 400);
  // The prompt follows a context that was evicted to a budget.
  const Json behind = ask(
      "/v1/completions", {{"prompt", " hat"},
                          {"max_tokens", 0},
                          {"logprobs", 1},
                          {"echo", true},
                          {"kv", {{"context", std::string(300, 'a')}, {"evict", "streaming-llm"}, {"budget", "20%"}}}});
  const Json& first = behind["choices"][0]["logprobs"];
  EXPECT_TRUE(first["token_logprobs"][0].is_number());
}

TEST_F(LlamaHttpTest, EchoAndTheBest) {
  start();
  Json body = {{"prompt", {"the hat", "a"}}, {"max_tokens", 4}, {"ignore_eos", true}};
  const Json plain = ask("/v1/completions", body);
  body["echo"] = true;
  const Json echoed = ask("/v1/completions", body);
  std::vector<std::string> texts(2);
  for (const Json& event : events("/v1/completions", body)) {
    texts[event["choices"][0]["index"].get<std::size_t>()] += event["choices"][0]["text"];
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string whole = body["prompt"][i].get<std::string>() + plain["choices"][i]["text"].get<std::string>();
    EXPECT_EQ(echoed["choices"][i]["text"], whole);
    EXPECT_EQ(texts[i], whole);
  }
  // The best of four draws is the likeliest of the four.
  Json draws = {{"prompt", "the hat"}, {"max_tokens", 4}, {"ignore_eos", true}, {"temperature", 2},
                {"seed", 5},           {"n", 4},          {"logprobs", 0}};
  const Json all = ask("/v1/completions", draws);
  std::string best;
  double highest = -1e9;
  for (const Json& choice : all["choices"]) {
    double sum = 0;
    for (const Json& one : choice["logprobs"]["token_logprobs"]) sum += one.get<double>();
    if (sum > highest) {
      highest = sum;
      best = choice["text"];
    }
  }
  draws["n"] = 1;
  draws["best_of"] = 4;
  draws.erase("logprobs");
  const Json told = ask("/v1/completions", draws);
  ASSERT_EQ(told["choices"].size(), 1U);
  EXPECT_EQ(told["choices"][0]["text"], best);
  EXPECT_TRUE(told["choices"][0]["logprobs"].is_null());
}

TEST_F(LlamaHttpTest, WhatItTells) {
  start();
  const Json props = get_json("/props");
  EXPECT_EQ(props["total_slots"], 8);
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 2048);
  const Json slots = get_json("/slots");
  ASSERT_EQ(slots.size(), 8U);
  EXPECT_EQ(slots[0]["is_processing"], false);
  const Json model = get_json("/v1/models")["data"][0];
  EXPECT_EQ(model["max_model_len"], 2048);
  EXPECT_GT(model["created"], 1'600'000'000);
  EXPECT_EQ(get_json("/v1/models/tiny")["id"], "tiny");
  EXPECT_EQ(ask("/apply-template", {{"messages", Json::array({{{"role", "user"}, {"content", "a"}}})}})["prompt"],
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
}

// Clients warm a server up like this; the next request finds the prompt in the cache.
TEST_F(LlamaHttpTest, NoTokensAreAPromptThatIsRead) {
  BatchOptions options;
  options.context_bytes = std::size_t{16} << 20;
  start({}, options);
  std::string prompt;
  for (int i = 0; i < 20; ++i) prompt += "the hat and the cat on a tent ";
  for (const char* path : {"/completion", "/v1/completions", "/v1/chat/completions"}) {
    for (const char* name : {"n_predict", "max_tokens"}) {
      Json body = {{"prompt", prompt}, {name, 0}, {"messages", {{{"role", "user"}, {"content", prompt}}}}};
      const Json answer = ask(path, body);
      const std::string text = answer.dump();
      EXPECT_NE(text.find(R"("predicted_n":0)"), std::string::npos) << text;
      body["stream"] = true;
      const auto stream = post(path, body.dump());
      EXPECT_EQ(stream->status, 200);
      EXPECT_EQ(stream->body.find("\"error\""), std::string::npos) << stream->body;
      body[name] = 2;
      body["stream"] = false;
      const std::string next = ask(path, body).dump();
      EXPECT_EQ(next.find(R"("cache_n":0,)"), std::string::npos) << next;
    }
  }
  const Json most = ask("/v1/chat/completions",
                        {{"messages", {{{"role", "user"}, {"content", "a"}}}}, {"n_predict", 3}, {"ignore_eos", true}});
  EXPECT_EQ(most["usage"]["completion_tokens"], 3);
  const Json all =
      ask("/v1/completions", {{"prompt", std::string(1900, 'x')}, {"max_tokens", -1}, {"ignore_eos", true}});
  EXPECT_GT(all["usage"]["completion_tokens"], 100);
}

TEST_F(LlamaHttpTest, ASchemaIsKeptWhereverItIs) {
  start();
  const Json schema = {{"type", "object"}, {"properties", {{"z", {{"const", 7}}}}}, {"required", {"z"}}};
  const Json messages = {{{"role", "user"}, {"content", "a"}}};
  for (const Json& more :
       std::vector<Json>{{{"response_format", {{"type", "json_object"}, {"schema", schema}}}},
                         {{"response_format", {{"type", "json_schema"}, {"schema", schema}}}},
                         {{"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}}}},
                         {{"response_format", {{"type", "json_object"}}}, {"json_schema", schema}},
                         {{"json_schema", schema}},
                         {{"guided_json", schema}},
                         {{"structured_outputs", {{"json", schema}}}}}) {
    for (const char* path : {"/v1/chat/completions", "/v1/completions", "/completion"}) {
      Json body = {{"messages", messages}, {"prompt", "a"}, {"max_tokens", 64}};
      body.update(more);
      const Json answer = ask(path, body);
      const std::string text = answer.contains("content")              ? answer["content"]
                               : answer["choices"][0].contains("text") ? answer["choices"][0]["text"]
                                                                       : answer["choices"][0]["message"]["content"];
      EXPECT_EQ(Json::parse(text), Json({{"z", 7}})) << path << more;
    }
  }
  const std::string head = R"({"messages":[{"role":"user","content":"a"}],)";
  for (const auto& [more, param] : std::vector<std::pair<const char*, const char*>>{
           {R"("json_schema":{"type":"object"},"guided_json":{"type":"object"})", "guided_json"},
           {R"("response_format":{"type":"json_object","schema":7})", "response_format.schema"},
           {R"("json_schema":"x")", "json_schema"},
           {R"("guided_regex":"a+")", "guided_regex"},
           {R"("structured_outputs":{"regex":"a+"})", "structured_outputs"},
           {R"("json_schema":{"type":"x"})", "json_schema"}}) {
    const auto answer = post("/v1/chat/completions", head + more + "}");
    EXPECT_EQ(answer->status, 400) << more;
    EXPECT_EQ(Json::parse(answer->body)["error"]["param"], param) << answer->body;
  }
  for (const char* more : {R"("response_format":{"type":"json_object","schema":{}})", R"("json_schema":null)",
                           R"("json_schema":{},"structured_outputs":{})"}) {
    EXPECT_EQ(post("/v1/chat/completions", head + more + R"(,"max_tokens":4})")->status, 200) << more;
  }
}

// Editors (llama.vim, llama.vscode) send these: an answer of several lines ends when its time is over.
TEST_F(LlamaHttpTest, TimesOfEditors) {
  start();
  Json body = {{"prompt", "a"},
               {"n_predict", 1500},
               {"ignore_eos", true},
               {"n_indent", 4},
               {"t_max_prompt_ms", 500},
               {"t_max_predict_ms", 1},
               {"samplers", {"top_k", "top_p", "infill"}},
               {"grammar", "root ::= (\"aa\\n    \")+"},
               {"temperature", 1},
               {"seed", 1}};
  const Json cut = ask("/completion", body);
  EXPECT_LT(cut["tokens_predicted"], 1500);
  EXPECT_EQ(cut["stop_type"], "limit");
  body["grammar"] = "root ::= [a]+";  // one line
  body["n_predict"] = 100;
  EXPECT_EQ(ask("/completion", body)["tokens_predicted"], 100);
}

TEST_F(LlamaHttpTest, LinesOfEditors) {
  start();
  Json body = {{"prompt", "a"}, {"n_predict", 60}, {"seed", 1}, {"n_indent", 4}, {"temperature", 1}};
  // The first line may begin anywhere; later ones are indented by four, by a tab and three, and by only three.
  const std::string kept = "a\n    a\n\t   a\n   ";
  body["grammar"] = R"(root ::= "a\n    a\n\t   a\n   aaaaaaaaaaaa")";
  const Json cut = ask("/completion", body);
  EXPECT_EQ(cut["content"], kept);
  EXPECT_EQ(cut["stop_type"], "limit");
  std::string streamed;
  for (const Json& event : events("/completion", body)) streamed += event["content"];
  EXPECT_EQ(streamed, kept);
  body["n_indent"] = 3;
  EXPECT_EQ(ask("/completion", body)["content"], kept + "aaaaaaaaaaaa");
}

TEST(IndentLimitTest, EndsBeforeALineThatIsIndentedLess) {
  const std::vector<std::tuple<int, std::string, std::string>> cases = {
      {0, "a\nb", "a\nb"},
      {-3, "a\n\nb", "a\n\nb"},
      {1, "a\nb", "a\n"},
      {1, "a\n b\n\nc", "a\n b\n"},
      {2, "  a\n\t\tb\n\tc", "  a\n\t\tb\n\t"},
      {2, "a\n ", "a\n "},
  };
  for (const auto& [n_indent, text, kept] : cases) {
    for (const bool at_once : {true, false}) {
      server::IndentLimit limit(n_indent);
      std::string shown;
      bool has_ended = false;
      for (std::size_t i = 0; i < text.size(); i += at_once ? text.size() : 1) {
        std::string piece = text.substr(i, at_once ? text.size() : 1);
        has_ended = limit.cut(piece);
        shown += piece;
      }
      EXPECT_EQ(shown, kept) << n_indent << ", " << text;
      EXPECT_EQ(has_ended, kept != text) << text;
    }
  }
}

TEST_F(LlamaHttpTest, PiecesOfTokens) {
  start();
  const Json tokens = ask("/tokenize", {{"content", "the \u00e9"}, {"with_pieces", true}})["tokens"];
  const Json ids = ask("/tokenize", {{"content", "the \u00e9"}})["tokens"];
  ASSERT_EQ(tokens.size(), ids.size());
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(tokens[i]["id"], ids[i]);
    if (tokens[i]["piece"].is_string()) {
      text += tokens[i]["piece"];
    } else {
      for (const Json& byte : tokens[i]["piece"]) text += static_cast<char>(byte.get<int>());
    }
  }
  EXPECT_EQ(text, "the \u00e9");
}

TEST_F(LlamaHttpTest, PathsWithoutTheVersion) {
  start();
  EXPECT_EQ(
      ask("/chat/completions", {{"messages", {{{"role", "user"}, {"content", "a"}}}}, {"max_tokens", 1}})["object"],
      "chat.completion");
  EXPECT_EQ(ask("/completions", {{"prompt", "a"}, {"max_tokens", 1}})["object"], "text_completion");
  EXPECT_EQ(client().Get("/models")->status, 200);
  EXPECT_EQ(client().Get("/models/tiny")->status, 200);
  EXPECT_EQ(ask("/embeddings", {{"input", "a"}})["object"], "list");
  const Json props = Json::parse(client().Get("/props")->body);
  EXPECT_EQ(props["bos_token"], "<s>");
  EXPECT_EQ(props["eos_token"], "</s>");
  EXPECT_EQ(props["chat_template"], test::kChatmlTemplate);
}

class NoBeginTokenTest : public HttpTest {
 protected:
  NoBeginTokenTest() : HttpTest(test::kChatmlTemplate, {.metadata = {{"tokenizer.ggml.add_bos_token", false}}}) {}
};

TEST_F(NoBeginTokenTest, PropsNameOneThatPromptsDoNotHave) {
  start();
  const Json tokens = answer_to("/tokenize", {{"content", "the"}, {"add_special", true}});
  EXPECT_EQ(tokens, answer_to("/tokenize", {{"content", "the"}}));
  EXPECT_EQ(Json::parse(client().Get("/props")->body)["bos_token"], "<s>");
}

TEST_F(LlamaHttpTest, WrongRequests) {
  start();
  for (const auto& [path, body, param] : std::vector<std::tuple<const char*, const char*, const char*>>{
           {"/completion", R"({})", "prompt"},
           {"/completion", R"({"prompt":"a","n_predict":-3})", "n_predict"},
           {"/completion", R"({"prompt":"a","n_probs":99})", "n_probs"},
           {"/completion", R"({"prompt":"a","post_sampling_probs":true})", "post_sampling_probs"},
           {"/completion", R"({"prompt":"a","lora":[{"id":0}]})", "lora"},
           {"/completion", R"({"prompt":"a","json_schema":7})", "json_schema"},
           {"/infill", R"({"input_prefix":7})", "input_prefix"},
           {"/infill", R"({"input_extra":7})", "input_extra"},
           {"/infill", R"({"input_extra":[7]})", "input_extra"},
           {"/apply-template", R"({"messages":7})", "messages"}}) {
    const auto answer = post(path, body);
    EXPECT_EQ(answer->status, 400) << body;
    EXPECT_EQ(Json::parse(answer->body)["error"]["param"], param) << body << answer->body;
  }
  // This model has no tokens for infill, which the error says.
  for (const auto& [path, body] : {std::pair("/infill", R"({"input_prefix":"a","input_suffix":"b"})"),
                                   std::pair("/v1/completions", R"({"prompt":"a","suffix":"b"})"),
                                   std::pair("/api/generate", R"({"prompt":"a","suffix":"b"})")}) {
    const auto answer = post(path, body);
    EXPECT_EQ(answer->status, 400);
    EXPECT_NE(answer->body.find("fill in the middle"), std::string::npos) << answer->body;
  }
}

// The model has tokens for infill, given by the file's metadata.
TEST_F(LlamaHttpTest, Infill) {
  constexpr Token kPrefix = 40, kSuffix = 41, kMiddle = 42;
  const gguf_context_ptr file(gguf_init_from_file(file_.path().c_str(), {.no_alloc = true, .ctx = nullptr}));
  ASSERT_NE(file, nullptr);
  const std::string weights = test::read_bytes(file_.path()).substr(gguf_get_data_offset(file.get()));
  gguf_set_val_u32(file.get(), "tokenizer.ggml.fim_pre_token_id", kPrefix);
  gguf_set_val_u32(file.get(), "tokenizer.ggml.fim_suf_token_id", kSuffix);
  gguf_set_val_u32(file.get(), "tokenizer.ggml.fim_mid_token_id", kMiddle);
  const test::TemporaryDirectory directory;
  std::string bytes(gguf_get_meta_size(file.get()), '\0');
  gguf_get_meta_data(file.get(), bytes.data());
  const auto model = Model::load(directory.write("infill.gguf", bytes + weights));
  std::vector<Token> expected = model->tokenize("", true, false);
  const auto append = [&](Token mark, const std::string& text) {
    expected.push_back(mark);
    for (const Token token : model->tokenize(text, false, false)) expected.push_back(token);
  };
  append(kPrefix, "the ");
  append(kSuffix, " hat");
  append(kMiddle, "c");
  EXPECT_EQ(infill_tokens(*model, {.prefix = "the ", .suffix = " hat", .files = {}, .begun = "c"}), expected);
  const std::vector<Token> with_file =
      infill_tokens(*model, {.prefix = "the ", .suffix = " hat", .files = {{"a.c", "int a;"}}, .begun = "c"});
  EXPECT_GT(with_file.size(), expected.size());
  const ApiRequest request =
      parse_request(Endpoint::kCompletion, RequestBody(Json::parse(R"({"prompt":"the ","suffix":" hat"})")), *model,
                    RequestDefaults());
  EXPECT_EQ(request.batch.prompt.size(), expected.size() - model->tokenize("c", false, false).size());

  // Of a text that is too long, what is next to the place stays: three quarters of the room before it.
  const InfillText whole{.prefix = std::string(4000, 'b') + "a",
                         .suffix = "c" + std::string(4000, 'd'),
                         .files = {{"far.c", std::string(4000, 'e')}, {"near.c", std::string(4000, 'f')}},
                         .begun = "g"};
  const std::vector<Token> cut = infill_tokens(*model, whole, 100);
  EXPECT_EQ(cut.size(), 100U);
  const auto place = [&](const std::vector<Token>& tokens, Token mark) {
    return std::find(tokens.begin(), tokens.end(), mark) - tokens.begin();
  };
  EXPECT_GE(place(cut, kSuffix) - place(cut, kPrefix), 70);
  EXPECT_GE(place(cut, kMiddle) - place(cut, kSuffix), 20);
  const std::vector<Token> prefix = model->tokenize("a", false, false);
  EXPECT_EQ(cut[static_cast<std::size_t>(place(cut, kSuffix)) - 1], prefix.back());
  // The files fill the room that short texts leave, and the nearest one is the last.
  const InfillText little{.prefix = "a", .suffix = "c", .files = whole.files, .begun = ""};
  EXPECT_EQ(infill_tokens(*model, little, 100).size(), 100U);
  InfillText shortened = whole;
  shorten(*model, 100, shortened);
  EXPECT_LE(shortened.prefix.size(), whole.prefix.size());
  EXPECT_EQ(infill_tokens(*model, shortened, 100), cut);
  // Editors get an answer, not an error.
  const ApiRequest long_one = LlamaDialect(LlamaDialect::Kind::kInfill, "m")
                                  .parse({{"input_prefix", std::string(1 << 20, 'b')},
                                          {"input_suffix", std::string(1 << 20, 'c')},
                                          {"n_predict", 16}},
                                         *model, RequestDefaults());
  EXPECT_EQ(long_one.n_prompt_tokens(), static_cast<std::size_t>(model->info().n_ctx_train) - 16);
}

}  // namespace
}  // namespace winnow::server
