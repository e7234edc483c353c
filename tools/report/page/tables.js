// SPDX-License-Identifier: MIT
/* Tables, which are sorted by a click at the head of a column. */

/* ---- columns: a title, a class, and a function that fills the cell of a row ------------------ */

function words(title, get, kind = 'w') {
	return {title, kind, fill(cell, row) { cell.append(get(row)); }};
}

/* A number that is null is not known, and sorted behind all others. */
function number(title, get, text) {
	return {title, kind: 'n', fill(cell, row) {
		const value = get(row);

		cell.dataset.v = value === null ? Number.MAX_VALUE : value;
		cell.append(value === null ? '–' : text(value));
	}};
}

function count(title, get) {
	return number(title, get, countText);
}

function size(title, get) {
	return number(title, get, bytesText);
}

function time(title, get) {
	return number(title, get, durationText);
}

const address = words('address', row => row.addr, 'a');
const process = [count('rank', row => row.rank), number('process', row => row.pid, String)];

/* A time, and the stack that acted then: its first line, the others folded unless `open`. */
function act(title, when, stack, never, open) {
	return {title, kind: 'w.s', fill(cell, row) {
		const [first, ...others] = row[stack];

		cell.dataset.v = row[when] === null ? Number.MAX_VALUE : row[when];
		cell.append(element('b', null, row[when] === null ? never :
			durationText(row[when])));
		if (others.length)
			cell.append(element('details', open ? {open: ''} : null,
				element('summary', null, first),
				...others.map(text => element('div', null, text))));
		else if (first)
			cell.append(element('div', null, first));
	}};
}

/* The caller with its library, and the functions that led there. */
function code(title, stack, module) {
	return {title, kind: 'w', fill(cell, row) {
		const [first = '-', ...others] = row[stack];
		const named = row[module] === null || first.startsWith(row[module] + '+');

		cell.append(named ? first : `${row[module]}: ${first}`,
			...others.map(text => element('div', null, text)));
	}};
}

/* ---- sorting --------------------------------------------------------------------------------- */

function sortBy(head) {
	const table = head.closest('table'), body = table.tBodies[0], was = head.dataset.order;
	const down = was ? was === 'up' : head.classList.contains('n');
	const rows = Array.from(body.rows).map(row => {
		const cell = row.cells[head.cellIndex], value = cell.dataset.v;

		return {row, key: value === undefined ? cell.textContent : Number(value)};
	});

	rows.sort((a, b) => (down ? -1 : 1) * (typeof a.key === 'number' ? a.key - b.key :
		a.key.localeCompare(b.key)));
	table.querySelectorAll('th').forEach(other => delete other.dataset.order);
	head.dataset.order = down ? 'down' : 'up';
	body.append(...rows.map(entry => entry.row));
}

/* ---- tables ---------------------------------------------------------------------------------- */

function headOf(column) {
	const head = element(column.kind === 'n' ? 'th.n' : 'th',
		{tabindex: 0, title: 'sort by this column'}, column.title);

	head.onclick = () => sortBy(head);
	head.onkeydown = event => event.key === 'Enter' && sortBy(head);
	return head;
}

function rowOf(row, columns, isBad) {
	return element(isBad && isBad(row) ? 'tr.bad' : 'tr', null, ...columns.map(column => {
		const cell = element('td.' + column.kind);

		column.fill(cell, row);
		return cell;
	}));
}

/* `all`: how many rows there are, where not all are listed. */
function showTable(title, columns, rows, {all = rows.length, isBad, most = 500} = {}) {
	const shown = rows.slice(0, most);

	if (!shown.length)
		return;
	show(element('h2', null, title), element('div.wide', null, element('table', null,
		element('thead', null, element('tr', null, ...columns.map(headOf))),
		element('tbody', null, ...shown.map(row => rowOf(row, columns, isBad))))));
	if (shown.length < all)
		show(element('p.dim', null, `and ${countText(all - shown.length)} more`));
}
