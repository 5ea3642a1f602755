// Code in colours: comments, strings, numbers and keywords, told apart by what most languages share.

import { html } from "./html.js";

const LONGEST = 50_000;
const WORDS = new Set(
  "and as assert async await break case catch class const continue def default del delete do elif else enum except export extends false final finally fn for from func function global go if impl implements import in instanceof interface is lambda let match mod module mut new nil none nonlocal not null of or package pass private protected pub public raise return self static struct super switch this throw trait true try type typeof undefined use var void where while with yield select insert update create table values set join on group by order limit begin end then fi done echo local".split(" "),
);
const HASH = new Set("python py ruby rb sh bash shell zsh yaml yml toml r make makefile dockerfile perl ini conf".split(" "));
const DASHES = new Set("sql lua haskell hs".split(" "));
const PLAIN = new Set(["text", "txt", "plain", "console", "output", "diff", "markdown", "md"]);

const STRING = `"""[\\s\\S]*?"""|'''[\\s\\S]*?'''|"(?:\\\\.|[^"\\\\\\n])*"|'(?:\\\\.|[^'\\\\\\n])*'|\`(?:\\\\.|[^\`\\\\])*\``;
const NUMBER = "\\b(?:0[xXbBoO][\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\b";

export function highlighted(code, language = "") {
  const name = language.trim().toLowerCase().split(/\s/)[0];
  if (name === "diff" || name === "patch") return code.split("\n").map((line) => html`<span class=${lineKind(line)}>${`${line}\n`}</span>`);
  if (!name || PLAIN.has(name) || code.length > LONGEST) return code;
  const comment = HASH.has(name) ? "#[^\\n]*" : DASHES.has(name) ? "--[^\\n]*" : name === "html" || name === "xml" ? "<!--[\\s\\S]*?-->" : name === "json" ? "(?!)" : "//[^\\n]*|/\\*[\\s\\S]*?\\*/";
  const token = new RegExp(`(?<comment>${comment})|(?<string>${STRING})|(?<number>${NUMBER})|(?<word>[A-Za-z_$][\\w$]*)`, "g");
  const parts = [];
  let end = 0;
  for (const found of code.matchAll(token)) {
    const kind = ["comment", "string", "number"].find((one) => found.groups[one] !== undefined) ?? (WORDS.has(name === "sql" ? found[0].toLowerCase() : found[0]) || found[0] === "None" || found[0] === "True" || found[0] === "False" ? "keyword" : "");
    if (!kind) continue;
    if (found.index > end) parts.push(code.slice(end, found.index));
    parts.push(html`<span class=${`tok-${kind}`}>${found[0]}</span>`);
    end = found.index + found[0].length;
  }
  return [...parts, code.slice(end)];
}

function lineKind(line) {
  return line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : line.startsWith("@@") ? "hunk" : "";
}
