// Markdown of answers: markdown-it reads it, Preact shows its tokens as elements. HTML in an answer stays text.

import { highlighted } from "./highlight.js";
import { Component, html } from "./html.js";
import MarkdownIt from "./vendor/markdown-it.mjs";

const SCHEMES = new Set(["http:", "https:", "mailto:"]);

const reader = new MarkdownIt({ html: false, linkify: true });
// Only whole addresses become links: `report.md` is a file, though .md is a top-level domain.
reader.linkify.set({ fuzzyLink: false, fuzzyEmail: false });

// The page renders with each token of an answer: a message that is still the same is not read again.
export class Markdown extends Component {
  shouldComponentUpdate({ text }) {
    return text !== this.props.text;
  }

  render({ text }) {
    return html`<div class="prose" dir="auto">${elements(reader.parse(text, {}))}</div>`;
  }
}

// Tokens come in a row: one that opens an element, its content, one that closes it.
function elements(tokens) {
  const stack = [{ content: [] }];
  for (const token of tokens) {
    const { opening, content } = stack.at(-1);
    if (token.nesting > 0) stack.push({ opening: token, content: [] });
    else if (token.nesting === 0) content.push(leaf(token, opening));
    else {
      stack.pop();
      stack.at(-1).content.push(element(opening, content));
    }
  }
  return stack[0].content;
}

function element(token, content) {
  switch (token.type) {
    case "paragraph_open":
      return token.hidden ? content : html`<p>${content}</p>`; // hidden: in a list without blank lines
    case "heading_open":
      return html`<p class="heading">${content}</p>`;
    case "ordered_list_open":
      return html`<ol start=${token.attrGet("start") ?? 1}>${content}</ol>`;
    case "table_open":
      return html`<div class="wide"><table>${content}</table></div>`;
    case "th_open":
    case "td_open":
      return html`<${token.tag} class=${token.attrGet("style")?.replace("text-align:", "")}>${content}<//>`;
    case "link_open":
      return link(token.attrGet("href"), content);
    default:
      return html`<${token.tag}>${content}<//>`; // ul, li, blockquote, thead, tbody, tr, em, strong, s
  }
}

function leaf(token, parent) {
  switch (token.type) {
    case "inline":
      return elements(token.children);
    case "code_inline":
      return html`<code>${token.content}</code>`;
    case "code_block":
    case "fence":
      return html`<pre tabindex="0"><code>${highlighted(token.content.replace(/\n$/, ""), token.info)}</code></pre>`;
    case "softbreak":
      return "\n";
    case "hardbreak":
      return html`<br />`;
    case "hr":
      return html`<hr />`;
    case "image": {
      // Pictures of elsewhere are not loaded: an answer could tell another server what it holds. Their text is shown.
      const text = token.content || "image";
      return parent?.type === "link_open" ? text : link(token.attrGet("src"), text);
    }
    default:
      return token.content;
  }
}

// A new tab keeps the thread open. Its address is the title, because a text can claim any other.
function link(address, content) {
  if (!URL.canParse(address) || !SCHEMES.has(new URL(address).protocol)) return content;
  return html`<a href=${address} title=${address} target="_blank" rel="noopener noreferrer nofollow">${content}</a>`;
}
