// SPDX-License-Identifier: MIT
/*
 * Flame graphs: a box for each function on a call stack, as wide as the bytes that it and the
 * functions that it called allocated. Narrow boxes show their text in a tooltip.
 */

const ROW = 20; /* pixels, as in page.css */

function flameBox(text, depth) {
	return {text, depth, bytes: 0, children: new Map()};
}

function childOf(box, text) {
	if (!box.children.has(text))
		box.children.set(text, flameBox(text, box.depth + 1));
	return box.children.get(text);
}

function flameTree(stacks) {
	const tree = flameBox('all allocations', 0);

	stacks.forEach(stack => {
		let box = tree;

		box.bytes += stack.bytes;
		[...stack.allocated_by].reverse().concat(stack.call || '(unknown)').forEach(one => {
			box = childOf(box, one);
			box.bytes += stack.bytes;
		});
	});
	return tree;
}

/* The elements of a box and of those above it. `left` and widths are percentages. */
function flameElements(box, left, whole) {
	const width = 100 * box.bytes / whole;
	const all = [element(width < 3 ? 'div.narrow' : 'div', {
		title: `${box.text}: ${bytesText(box.bytes)}, ${width.toFixed(1)} %`,
		style: `left:${left.toFixed(2)}%;width:${width.toFixed(2)}%;` +
			`bottom:${box.depth * ROW}px`}, box.text)];

	if (width < .05) /* nobody could see it */
		return [];
	box.children.forEach(child => {
		all.push(...flameElements(child, left, whole));
		left += 100 * child.bytes / whole;
	});
	return all;
}

function flameHeight(box) {
	return 1 + Math.max(0, ...Array.from(box.children.values(), flameHeight));
}

function showFlame(title, kind, stacks) {
	const tree = flameTree(stacks);

	if (!tree.bytes)
		return;
	show(element('h2', null, title), element('p.dim', null, bytesText(tree.bytes) + '. ' +
		'A box is as wide as the bytes that a function and those above it, which it ' +
		'called, have allocated.'),
	element('div.flame' + kind, {role: 'img', 'aria-label': 'flame graph',
		style: `height:${flameHeight(tree) * ROW + 2}px`},
	...flameElements(tree, 0, tree.bytes)));
}
