// Markup in template strings, without a build: htm parses it, Preact renders it, always as text and elements.

import htm from "./vendor/htm.mjs";
import { h } from "./vendor/preact.mjs";

export { Component, createRef, render } from "./vendor/preact.mjs";
export const html = htm.bind(h);
