// SPDX-License-Identifier: MIT
/* Numbers as the command prints them, and the elements of the page. */
'use strict';

function scaled(value, unit) {
	const whole = Math.floor(value / unit), digits = whole < 10 ? 2 : whole < 100 ? 1 : 0;
	const factor = 10 ** digits;

	return (Math.floor(value * factor / unit) / factor).toFixed(digits);
}

function bytesText(bytes) {
	const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
	let i = 0;

	while (i < 6 && bytes >= 1024 ** (i + 1))
		i++;
	return (bytes % 1024 ** i ? scaled(bytes, 1024 ** i) : bytes / 1024 ** i) + ' ' + units[i];
}

function durationText(ns) {
	if (ns < 1e4)
		return ns + ' ns';
	if (ns < 1e6)
		return scaled(ns, 1e3) + ' µs';
	return ns < 1e9 ? scaled(ns, 1e6) + ' ms' : scaled(ns, 1e9) + ' s';
}

/* 12 345 678 */
function countText(count) {
	return String(count).replace(/\B(?=(\d{3})+$)/g, ' ');
}

/* A time with as many digits as tell it from one that is `step` later. */
function markText(ns, step) {
	const power = ns < 1e4 ? 0 : ns < 1e6 ? 1 : ns < 1e9 ? 2 : 3, unit = 1e3 ** power;
	const digits = Math.max(power > 1 ? 2 : 1, Math.ceil(Math.log10(unit / step)) + 1);

	return (ns / unit).toFixed(power ? digits : 0) + ' ' + ['ns', 'µs', 'ms', 's'][power];
}

function processText(process) {
	return `process ${process.pid}` + (process.rank === null ? '' : `, rank ${process.rank}`);
}

/* The begin of a long text. */
function shortened(text, length) {
	return text.length > length ? text.slice(0, length) + ' …' : text;
}

function commandText(process) {
	return shortened(process.command.join(' '), 300);
}

/*
 * An element, "tag.class.class", with attributes and what is in it. Texts become text nodes: what
 * a trace contains is never markup.
 */
function element(kind, attributes, ...content) {
	const [tag, ...classes] = kind.split('.');
	const made = /^(svg|path)$/.test(tag) ?
		document.createElementNS('http://www.w3.org/2000/svg', tag) :
		document.createElement(tag);

	if (classes.length)
		made.setAttribute('class', classes.join(' '));
	Object.entries(attributes || {}).forEach(([name, value]) => made.setAttribute(name, value));
	made.append(...content);
	return made;
}

/* The same, at the end of the page. */
function show(...elements) {
	document.body.append(...elements);
}

/* ---- the boxes on top ------------------------------------------------------------------------ */

/* What a count that is not 0 is: a class of the page. */
const gravities = {fact: '', note: 'note', wrong: 'bad'};

function answerBox(kind, what, value, more) {
	return element('div.answer' + (kind && '.' + kind), null, element('em', null, what),
		element('b', null, value), element('span', null, more || ''));
}

function showAnswers(boxes) {
	show(element('div.answers', null, ...boxes));
}
