// A form from a JSON schema: the input of a graph, or the arguments of a tool call.

import { html } from "./html.js";
import { exactly, named } from "./words.js";

// What is written as text until it is sent: every field of `schema` has its text, or true and false.
export function Fields({ schema, texts, write, isDisabled = false }) {
  return Object.entries(schema.properties ?? {}).map(([name, given]) => {
    const field = plain(given, schema);
    const label = field.title ?? named(name);
    const change = (event) => write(name, event.target.value);
    const text = texts[name] ?? "";
    const isRequired = (schema.required ?? []).includes(name);
    return html`<label class="field" key=${name}><span>${label}${isRequired ? " (required)" : ""}${field.description ? ` – ${field.description}` : ""}</span>
      ${field.enum || field.type === "boolean"
        ? html`<select disabled=${isDisabled} value=${text} onChange=${change}><option value="">not given</option>${(field.enum ?? ["true", "false"]).map((one) => html`<option key=${one} value=${String(one)} selected=${String(one) === text}>${String(one)}</option>`)}</select>`
        : field.type === "number" || field.type === "integer"
          ? html`<input type="number" disabled=${isDisabled} step=${field.type === "integer" ? 1 : "any"} value=${text} onInput=${change} />`
          : html`<textarea rows=${field.type === "string" ? 1 : 3} class=${field.type === "string" ? "" : "code"} disabled=${isDisabled} placeholder=${field.type === "string" ? "" : "JSON"} value=${text} onInput=${change}></textarea>`}
    </label>`;
  });
}

// The values the texts mean. Fields without a text are left out. Throws an error that names the field.
export function valuesOf(schema, texts) {
  const values = {};
  for (const [name, given] of Object.entries(schema.properties ?? {})) {
    const text = texts[name] ?? "";
    const field = plain(given, schema);
    if (text.trim() === "") {
      if ((schema.required ?? []).includes(name) && field.type !== "string") throw new Error(`${name} is required`);
      if (!(schema.required ?? []).includes(name)) continue;
    }
    try {
      values[name] = field.type === "string" ? text : field.enum ? field.enum.find((one) => String(one) === text) : JSON.parse(text);
    } catch (error) {
      throw new Error(`${name}: ${error.message}`);
    }
  }
  return values;
}

export function textsOf(schema, values) {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, plain(schema.properties?.[name] ?? {}, schema).type === "string" || typeof value !== "object" ? String(value) : exactly(value)]));
}

// The schema that fits given values, where no other is known.
export function schemaOf(values) {
  const kind = (value) => (typeof value === "string" ? "string" : typeof value === "boolean" ? "boolean" : typeof value === "number" ? "number" : "object");
  return { properties: Object.fromEntries(Object.entries(values).map(([name, value]) => [name, { type: kind(value), title: name }])), required: Object.keys(values) };
}

// Without its reference, and of a type or nothing the type.
function plain(field, schema) {
  const name = /^#\/\$defs\/(.+)$/.exec(field.$ref ?? "")?.[1];
  const found = name ? { ...schema.$defs?.[name], ...field } : field;
  const other = (found.anyOf ?? []).filter((one) => one.type !== "null");
  return other.length === 1 ? { ...plain(other[0], schema), title: found.title, description: found.description } : found;
}
