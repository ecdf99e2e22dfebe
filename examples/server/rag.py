#!/usr/bin/env python3
"""Answers questions about texts with LangChain: a passage is read and compressed once, and later answers use its cache.

usage: rag.py [--url http://localhost:8080/v1] [--key KEY] [--words 300] [--budget 10%bytes] TEXT... -q QUESTION [-q QUESTION]

Before it: winnow serve -m models/SmolLM2-135M-Instruct-Q4_1.gguf --cache-dir contexts; pip install langchain-openai

A question goes to the passage whose embedding is nearest to its own. The passage is sent as kv.context, with the same
text every time, so the server finds its compressed cache in memory or in --cache-dir, whoever asked before, and reads
only the question.
"""
import argparse
import hashlib
import pathlib

import langchain_openai


def passages_of(text, n_words):
    """Joins paragraphs into passages of at most n_words words; longer paragraphs are cut."""
    passages, words = [], []
    for paragraph in text.split("\n\n"):
        for word in [*paragraph.split(), "\n\n"]:
            words.append(word)
            if len(words) >= n_words:
                passages.append(" ".join(words))
                words = []
    return [passage for passage in (*passages, " ".join(words)) if passage.strip()]


def nearest(index, vector):
    """Returns the passage with the largest cosine, which is the dot product because vectors have length 1."""
    return max(index, key=lambda entry: sum(a * b for a, b in zip(entry[1], vector)))[0]


def ask(chat, passage, question, budget):
    kv = {"context": passage, "evict": "auto", "budget": budget}
    # With a proxy (examples/replicas) the header leads to the server that has the passage.
    name = hashlib.sha256(passage.encode()).hexdigest()
    return chat.bind(extra_body={"kv": kv}, extra_headers={"X-Winnow-Context": name}).invoke(question)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("-q", "--question", action="append", required=True)
    parser.add_argument("--url", default="http://localhost:8080/v1")
    parser.add_argument("--key", default="none")
    parser.add_argument("--words", type=int, default=300)
    parser.add_argument("--budget", default="10%bytes")
    arguments = parser.parse_args()

    # Sends texts and not another model's tokens, because the server has its own tokenizer.
    embeddings = langchain_openai.OpenAIEmbeddings(base_url=arguments.url, api_key=arguments.key, model="any",
                                                   check_embedding_ctx_length=False)
    chat = langchain_openai.ChatOpenAI(base_url=arguments.url, api_key=arguments.key, model="any", temperature=0,
                                       max_tokens=60)
    corpus = [passage for path in arguments.texts
              for passage in passages_of(pathlib.Path(path).read_text(encoding="utf-8"), arguments.words)]
    index = list(zip(corpus, embeddings.embed_documents(corpus)))
    for question in arguments.question:
        passage = nearest(index, embeddings.embed_query(question))
        answer = ask(chat, passage, question, arguments.budget)
        usage = answer.usage_metadata
        cached = usage.get("input_token_details", {}).get("cache_read", 0)
        print(f"{question}\n  {answer.content.strip()}")
        print(f"  (passage {corpus.index(passage) + 1} of {len(corpus)}; {cached} of {usage['input_tokens']} tokens from its cache)")


if __name__ == "__main__":
    main()
